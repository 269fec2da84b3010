"""What the commands print: tables and summaries for a terminal."""

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.data.check import Quality
from atdm.data.clock import spell, stamp
from atdm.kernel.design import LAGGED, SYMBOLS, UNITS
from atdm.report.evidence import coverage_of
from atdm.report.use_text import coverage_table, horizons_table
from atdm.report.words import curve, no_better, planning, r2_text, remedies, restarted, search, under
from atdm.result import Fit
from atdm.use.ready import problems, short_of


def summary(fit: Fit, name: str) -> RenderableType:
    """A fit on one screen: the model to use, how good it is, whether to plan with it; who learned what; the cost.

    Parameters
    ----------
    fit : Fit
        What to show.
    name : str
        Of the cluster, for the first line.

    Returns
    -------
    rich.console.RenderableType
        Something that rich prints.
    """
    head = Text()
    head.append(f"{name}: ", style="bold")
    head.append(f"{fit.agents} agents, {len(fit.state)} rows from {fit.state.index[0]} to {fit.state.index[-1]}\n")
    head.append(": ".join(filter(None, (under(fit.protocol, fit.weighting), search(fit)))) + "\n")
    head.append(f"model to use: {fit.chosen.words()}\n")
    first: list[RenderableType] = [head, horizons_table(fit), Text()]
    if held := coverage_of(fit):
        first += [coverage_table([c for c in held if c.hours == held[-1].hours]), Text()]
    if words := planning(fit):
        first += [Text(f"Can I plan with it? {words}", style="bold"), Text()]
    notes = _notes((*no_better(fit.horizons["chosen"]), *fit.said, *curve(fit), *remedies(fit)))
    return Group(*first, _coefficients(fit), Text(), _paper(fit), Text(), learned(fit), Text(), _cost(fit), *notes)


def _coefficients(fit: Fit) -> Table:
    model = fit.chosen
    table = Table("lag", box=None, header_style="dim", pad_edge=False)
    for name in LAGGED:
        table.add_column(f"{SYMBOLS[name]} [{UNITS[name]}]", justify="right")
    for m in range(model.order + 1):
        alpha = f"{model.alpha[m - 1]:.4f}" if m else ""
        table.add_row(f"t-{m}", alpha, *(f"{gains[m]:.5f}" for gains in model.coefficients.gains()))
    return table


def _paper(fit: Fit) -> Text:
    """The paper's own measure, of the model as the protocol estimated it."""
    run = fit.metrics["test"]["free_run"]
    poor = ", which is worse than a constant" if run["r2"] < 0 else ""
    return Text(
        f"for comparison with the paper: free run over the test rows as the protocol estimated it, R² "
        f"{r2_text(run['r2'], 4)}, RMSE {run['rmse']:.3f} K{poor} ({restarted(fit)})", style="dim",
    )  # fmt: skip


def learned(fit: Fit) -> Table:
    """The ledger."""
    table = Table("who", "learned", "size", "times", box=None, header_style="dim", pad_edge=False)
    for row in fit.ledger:
        size = " × ".join(str(n) for n in row["shape"]) or "1"
        table.add_row(row["party"], row["what"], size, str(row["times"]))
    return table


def _cost(fit: Fit) -> Text:
    cost = fit.cost
    if fit.protocol == "plain":
        return Text(f"{cost.seconds:.2f} s")
    where = "for all parties in one process" if cost.seconds_per_agent is not None else "of wall clock"
    return Text(
        f"{cost.rounds} messages and {cost.bytes_up_per_agent / 1000:.0f} kB up per agent; "
        f"{cost.seconds:.2f} s {where}, key set-up {cost.setup_seconds:.2f} s"
    )


def _notes(notes: tuple[str, ...]) -> list[RenderableType]:
    return [Text(f"note: {note}", style="yellow") for note in notes]


def quality_dict(quality: Quality) -> dict[str, Any]:
    """The object that `atdm check --json` prints."""
    return {
        "agents": [asdict(agent) for agent in quality.agents],
        "problems": problems(quality),
        "notes": (*quality.notes, *short_of(quality)),
        "rows": quality.rows,
        "rows_kept": quality.rows_kept,
        "costs": quality.costs,
        "without": [{"agent": agent, "rows_kept": rows} for agent, rows in quality.without],
    }


def quality_table(quality: Quality) -> RenderableType:
    """What `atdm check` shows."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    names = ("agent", "rows", "first", "last", "step", "gaps", "missing", "filled", "days out", "min °C", "max °C",
             "unchanged h", "suspicion")  # fmt: skip
    for column in names:
        table.add_column(column, justify="left" if column in ("agent", "suspicion") else "right")
    for a in quality.agents:
        table.add_row(
            a.agent, str(a.rows), stamp(a.first), stamp(a.last), spell(a.step) if a.step is not None else "",
            str(a.gaps), str(a.missing), _count(a.filled), _count(a.days_out),
            f"{a.min:.2f}", f"{a.max:.2f}", f"{a.stuck_hours:g}", a.suspicion or "",
        )  # fmt: skip
    wrong = problems(quality)
    said = [Text(f"problem: {problem}", style="red") for problem in wrong]
    verdict = Text(_verdict(quality, bool(wrong)), style="bold")
    return Group(table, *_notes(quality.notes), *_notes(short_of(quality)), *said, verdict)


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _verdict(quality: Quality, wrong: bool) -> str:
    if len(quality.agents) == 1:
        return "this home could not take part" if wrong else "this home is fit to take part"
    if wrong:
        return "a fit would be refused"
    stay = sum(not agent.left_out for agent in quality.agents)
    return f"a fit would keep {quality.rows_kept} of {quality.rows} rows of {stay} of {len(quality.agents)} agents"
