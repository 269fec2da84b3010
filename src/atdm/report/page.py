"""The report: one HTML file that opens anywhere, asks the network for nothing and says who learned what.

Rule 1: what a deployed aggregator does not have cannot be on its page: weights and zones come in only with a
        simulation's `fit.weights` and `cluster`.
Rule 2: every text that came from outside is escaped; the page's policy allows its own script and nothing else.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import Any

import pandas as pd

from atdm.data import Cluster
from atdm.data.clock import spell
from atdm.kernel.descent import Status
from atdm.kernel.design import INPUTS, LAGGED, SYMBOLS, UNITS
from atdm.model.diagnostics import roots, time_constants
from atdm.model.fitted import Model
from atdm.report import figures, learned
from atdm.report.chart import Chart, draw
from atdm.report.evidence import coverage_of, diagnosis, step_hours
from atdm.report.parts import byte_count, source_hash, static
from atdm.report.words import (
    curve,
    goodness,
    no_better,
    planning,
    r2_text,
    remedies,
    restarted,
    search,
    under,
    weighting,
)
from atdm.result import Fit, percent

COLUMNS = tuple((name, SYMBOLS[name], UNITS[name]) for name in LAGGED)  # of the table of coefficients
HELP = (
    '<p class="help">Charts: drag to zoom, double-click to reset. With the keyboard: Tab to a chart, arrows move, '
    "+ and − zoom, Escape resets.</p>"
)
FINDING_COLUMNS = ("attack", "adversary", "recovered", "agents", "rmse_c", "baseline_rmse_c", "note")


def fit_page(
    fit: Fit, title: str, *, cluster: Cluster | None = None, findings: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The report of a fit as one HTML page that opens offline.

    Parameters
    ----------
    fit : Fit
        What to report.
    title : str
        Of the page.
    cluster : Cluster, optional
        Adds the zones; only a simulation has them.
    findings : sequence of dict, optional
        Adds the findings of an audit.

    Returns
    -------
    str
        The page.
    """
    sections = [
        section("fit", "How well it fits", "", _metrics(fit) + drawn(figures.accuracy_charts(fit))),
        section("learned", "Who learned what", _learned_lead(fit), learned.diagram(fit)),
        section("model", "What the model does", "", _behaviour(fit)),
        section("residuals", "What the model leaves", "", drawn(figures.residual_charts(fit))),
        section("simulation", "Behind the curtain", _SIMULATION, drawn(figures.simulation_charts(fit, cluster))),
        section("audit", "Attacks mounted", _AUDIT, _findings(findings)),
        section("cost", "What it took", "", _cost(fit)),
    ]
    return document(title, _headline(fit, title), [s for s in sections if s])


def compare_page(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Protocols side by side as one HTML page, in the look of `fit_page`.

    Parameters
    ----------
    rows : sequence of dict
        One for each protocol, as `atdm compare` makes them.
    title : str
        Of the page.

    Returns
    -------
    str
        The page.
    """
    ran = [row for row in rows if "refused" not in row]
    refused = "".join(f"<li>{escape(row['protocol'])}: {escape(row['refused'])}</li>" for row in rows if row not in ran)
    head = f"""
<p class="eyebrow">atdm compare</p>
<h1>{escape(title)}</h1>
<p class="lead">The same model fitted to the same data, protocol by protocol: what each costs, and who learns what.</p>
{f'<ul class="notes" aria-label="Refused">{refused}</ul>' if refused else ""}"""
    cards = "".join(learned.card(str(row["protocol"]), row["aggregator_learned"], row["peers_learned"]) for row in ran)
    return document(title, head, [
        section("accuracy", "The same model", _APART, _side_by_side(ran, ACCURACY, "accuracy")),
        section("cost", "What it took", _TOOK, _side_by_side(ran, COST, "cost")),
        section("learned", "Who learned what", _LEARNED, f'<div class="sinks">{cards}</div>'),
    ])  # fmt: skip


# Sections

Column = tuple[str, str, str]  # key of a row of lab/compare.py, name, format
ACCURACY: tuple[Column, ...] = (
    ("status", "status", ""),
    ("r2", "test R², free run [-]", ".4f"),
    ("ridge", "ridge λ [K²]", ".5g"),
    ("coefficients_apart", "coefficients apart [own units]", ".0e"),
    ("weights_apart", "weights apart [-]", ".0e"),
)
COST: tuple[Column, ...] = (
    ("sums", "totals [-]", ",d"),
    ("rounds", "messages [-]", ",d"),
    ("bytes_up_per_agent", "sent per agent [kB]", "kB"),
    ("seconds_per_agent", "time per agent [ms]", "ms"),
    ("seconds_aggregator", "time of the aggregator [ms]", "ms"),
)
_APART = (
    "Apart: the largest difference to plain with the same weighting, of a coefficient, and of a weight relative to the "
    "largest weight. Under blind the agents stop their search early and may end at another ridge. “Blind, no dither” "
    "compares arithmetic alone; agents of a deployment add their dither."
)
_TOOK = "Totals are sums of whole series that were opened for the estimation. Times are those of this machine."
_LEARNED = "From the ledgers, which are written where a value arrives. In red: what is about single agents."
_SIMULATION = (
    "This run simulated every agent in one process, so that their own numbers can be shown. The aggregator of a "
    "deployment has none of them, and its report has no such section."
)
_AUDIT = "What each attack got out of this run's transcripts. The baseline is the best guess without it."


def _headline(fit: Fit, title: str) -> str:
    judged = fit.horizons["chosen"]
    facts = (
        *((f"off after {h.hours} h (no change: {_kelvin(h.persistence_rmse)})", _kelvin(h.rmse)) for h in judged),
        ("agents", f"{fit.agents:,}" + (f", {len(fit.out):,} out" if fit.out else "")),
        ("rows", f"{len(fit.state):,} × {spell(fit.model.step)}"),
        _weights_fact(fit),
    )
    tiles = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    said = [*no_better(judged), *fit.said, *curve(fit), *remedies(fit), *_model_notes(fit)]
    notes = "".join(f"<li>{escape(note)}</li>" for note in said)
    how, ended = weighting(fit.protocol, fit.weighting), f", {search(fit)}" if search(fit) else ""
    plan = f"<p><b>Can I plan with it?</b> {escape(planning(fit))}</p>" if planning(fit) else ""
    return f"""
<p class="eyebrow">atdm report · {escape(under(fit.protocol, fit.weighting))}</p>
<h1>{escape(title)}</h1>
<p class="lead">A thermal model of {fit.agents} agents, {_day(fit.state.index[0])} to {_day(fit.state.index[-1])}:
<b>{escape(fit.chosen.words())}</b>. {escape(goodness(judged))}</p>
{plan}
<p>Under <b>{escape(fit.protocol)}</b> with <b>{how}</b>{ended}. {escape(learned.aggregator_sentence(fit))}</p>
<dl class="tiles">{tiles}</dl>
{f'<ul class="notes" aria-label="Notes">{notes}</ul>' if notes else ""}"""


def _kelvin(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} K"


def _digits(value: float | None) -> str:
    return "–" if value is None else number(value, 3)


def _weights_fact(fit: Fit) -> tuple[str, str]:
    if fit.weighting == "equal":
        return "weights", "equal"
    if fit.protocol == "blind" and fit.status is not Status.NOT_CONVERGED:
        return "weights, off the best possible", f"≤ {percent(fit.excess)}"
    return f"status, {fit.iterations} iterations", str(fit.status)


def _day(time: pd.Timestamp) -> str:
    return f"{time.day} {time:%B %Y}"


def _model_notes(fit: Fit) -> list[str]:
    found = diagnosis(fit)
    notes = list(found.warnings) if found is not None else []
    if found is None:
        notes.append("there are too few rows without a gap to judge the model by them")
    if fit.status is Status.NOT_CONVERGED:
        notes.append("the descent did not converge: use a longer window, or a larger ridge")
    return notes


def _learned_lead(fit: Fit) -> str:
    own = " It estimated the model from these itself." if learned.collected(fit) else ""
    return (
        f"{learned.aggregator_sentence(fit)}{own} Drawn from the ledger, which is written at the place where a value "
        "arrives: how many numbers of which kind, not how sensitive they are."
    )


def _metrics(fit: Fit) -> str:
    found = fit.horizons
    body = [
        [f"{c.hours} h", f"{c.origins:,}", *(_digits(v) for v in (c.rmse, c.persistence_rmse, e.rmse))]
        for c, e in zip(found["chosen"], found["estimated"], strict=True)
    ]
    head = ["after", "origins", "this model [K]", "no change [K]", "as the protocol estimated it [K]"]
    errors = table(head, body, download="errors")
    bands = [
        [f"{c.hours} h", f"{c.level} %", f"{100 * c.share:.0f} %", number(c.width, 2), f"{c.origins:,}"]
        for c in coverage_of(fit)
    ]
    lead = "<p>Root mean square error on the test rows, from every origin that has the rows.</p>"
    head = ["bands after", "said to hold", "held", "mean width [K]", "origins"]
    asked = "<p>How often the temperature so long ahead was inside its band, from every hour of the test rows.</p>"
    held = asked + table(head, bands, download="bands") if bands else ""
    return lead + errors + held + _chosen_among(fit) + _paper(fit)


def _chosen_among(fit: Fit) -> str:
    """How the candidates did on the training rows."""
    if fit.choice is None or not fit.choice.scores:
        return ""
    body = [
        [s.candidate.words() + (": chosen" if s.candidate == fit.choice.candidate else ""), str(s.parameters),
         number(s.rmse, 3), number(above, 4), number(error, 4)]
        for s, (above, error) in zip(fit.choice.scores, fit.choice.margins(), strict=True)
    ]  # fmt: skip
    lead = (
        "<h3>Chosen among</h3><p>Errors of forecasts of 24 h inside the training rows; chosen is the simplest whose "
        "mean square error is above the best by no more than one standard error of that difference. Refined on its "
        "forecasts it is compared with itself as it was, and takes its own place if that is lower by more than one. "
        "Test rows played no part.</p>"
    )
    head = ["model", "parameters", "error [K]", "above the best [K²]", "standard error [K²]"]
    return lead + table(head, body, download="candidates", text=1)


def _paper(fit: Fit) -> str:
    """The paper's own measures, of the model as the protocol estimated it."""
    names = (("rmse", "RMSE [K]"), ("mape", "MAPE [%]"), ("r2", "R² [-]"))
    kinds = (("free_run", "free run"), ("one_step", "one step ahead"))
    body = []
    for part in ("test", "train"):
        for kind, label in kinds:
            found = fit.metrics[part][kind]
            body.append([part, label, *(number(found[key], 4) for key in ("rmse", "mape")), r2_text(found["r2"], 4)])
    lead = (
        "<h3>For comparison with the paper</h3><p>Of the model as the protocol estimated it. A free run goes through "
        f"all rows of a part from its first {fit.model.order} values; that of the test rows was {restarted(fit)}. "
        "R² below 0 means worse than a constant, far below 0 that the run went astray: then the errors after 1 to 24 h "
        "above say more.</p>"
    )
    return lead + table(["rows", "prediction", *(name for _, name in names)], body, download="metrics", text=2)


def _behaviour(fit: Fit) -> str:
    return drawn(figures.behaviour_charts(fit)) + _constants(fit) + _coefficients(fit)


def _constants(fit: Fit) -> str:
    poles, found, step = roots(fit.chosen.alpha), diagnosis(fit), step_hours(fit)
    bands = found.time_constant_bands if found is not None else None
    body = [
        [_root(z), _time(z, tau, step), "–" if bands is None or tau < step / 2 else
         f"{_hours(bands[i, 0])} to {_hours(bands[i, 1])}"]
        for i, (z, tau) in enumerate(zip(poles.tolist(), time_constants(poles, step).tolist(), strict=True))
    ]  # fmt: skip
    lead = "<p>How fast the aggregate temperature forgets a disturbance, one line per root of the model.</p>"
    times = table(["root z [-]", "time constant", "95 % interval"], body, download="time-constants")
    return "<h3>Time constants</h3>" + lead + times


def _root(z: complex) -> str:
    imaginary = f" {'+' if z.imag > 0 else '−'} {number(abs(z.imag), 4)}i" if abs(z.imag) > 1e-12 else ""
    return number(z.real, 4) + imaginary


def _time(z: complex, hours: float, step: float) -> str:
    """A mode that decays has a time constant; one that does not is said to grow."""
    if math.isfinite(hours):
        return _hours(hours) if hours > step / 2 else "under half a step"
    return f"grows e-fold in {_hours(step / math.log(abs(z)))}" if abs(z) > 1 else "does not decay"


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if math.isfinite(hours) else "∞"


def _coefficients(fit: Fit) -> str:
    head = ["lag", *(f"{letter} [{unit}]" for _, letter, unit in COLUMNS)]

    def rows(model: Model) -> list[list[str]]:
        lags = range(model.order + 1)
        alpha = [number(model.alpha[m - 1], 5) if m else "" for m in lags]
        return [
            [f"t−{m}", alpha[m], *(number(getattr(model.coefficients, n)[m], 5) for n, _, _ in COLUMNS[1:])]
            for m in lags
        ]

    legend = ", ".join(["α: temperature of earlier rows", *(f"{i.symbol}: {i.name}" for i in INPUTS)])
    used = f"<h3>Coefficients</h3><p>{legend}. Of the model that is used: {escape(fit.chosen.words())}.</p>"
    theirs = "<p>As the protocol estimated it, comparable with the paper's:</p>"
    return (
        used + table(head, rows(fit.chosen), download="coefficients", text=1)
        + theirs + table(head, rows(fit.model), download="estimated-coefficients", text=1)
    )  # fmt: skip


def _findings(findings: Sequence[Mapping[str, Any]] | None) -> str:
    if not findings:
        return ""
    keys = [key for key in FINDING_COLUMNS if any(key in finding for finding in findings)]
    names = {"rmse_c": "RMSE [K]", "baseline_rmse_c": "baseline RMSE [K]", "recovered": "agents recovered"}
    body = [[_cell(finding.get(key)) for key in keys] for finding in findings]
    return table([names.get(key, key) for key in keys], body, download="findings", text=2)


def _cost(fit: Fit) -> str:
    cost = fit.cost
    seconds = "not measured" if cost.seconds_per_agent is None else f"{cost.seconds_per_agent:.3f} s"
    body = [
        ["each agent (median)", f"{cost.rounds:,}", byte_count(cost.bytes_up_per_agent),
         byte_count(cost.bytes_down_per_agent), seconds],
        ["aggregator", "", "", "", f"{cost.seconds_aggregator:.3f} s"],
        ["the whole run, all parties", "", byte_count(cost.bytes_up_per_agent * fit.agents),
         byte_count(cost.bytes_down_per_agent * fit.agents), f"{cost.seconds:.2f} s"],
        ["key set-up, apart", "", "", "", f"{cost.setup_seconds:.2f} s"],
    ]  # fmt: skip
    led = fit.protocol == "blind" and not learned.collected(fit)
    shared = (
        " Agents of one process share arithmetic on what all of them hold: one by itself takes somewhat longer."
        if cost.seconds_per_agent is not None and led
        else ""
    )
    leader = "; the leader, who seals the group secret and the numbers to release, sends a little more" if led else ""
    lead = (
        f"<p>Totals of a whole series opened for the estimation: {cost.sums}. Bytes of the whole run are those of the "
        f"median agent times the number of agents{leader}.{shared}</p>"
        if fit.protocol != "plain"
        else ""
    )
    return lead + table(["party", "messages", "sent", "received", "time"], body, download="cost", text=1)


# Pieces


def section(name: str, title: str, lead: str, body: str) -> str:
    if not body:
        return ""
    text = f"<p>{escape(lead)}</p>" if lead else ""
    return f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{title}</h2>{text}{body}</section>'


def drawn(charts: Sequence[Chart]) -> str:
    large = "".join(draw(chart) for chart in charts if not chart.small)
    small = "".join(draw(chart) for chart in charts if chart.small)
    return large + (f'<div class="grid-of-figures">{small}</div>' if small else "")


def table(
    head: Sequence[str], body: Sequence[Sequence[str]], *, download: str, text: int = 1,
    numeric: Sequence[bool] | None = None,
) -> str:  # fmt: skip
    """A table that scrolls by itself where the screen is narrow; numbers stand right, after `text` columns of words."""
    right = [i >= text for i in range(len(head))] if numeric is None else numeric
    kinds = [' class="num"' if is_right else "" for is_right in right]
    cells = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for kind, name in zip(kinds, head, strict=True))
    rows = "".join(
        "<tr>" + "".join(
            f'<th scope="row"{kind}>{escape(value)}</th>' if i == 0 else f"<td{kind}>{escape(value)}</td>"
            for i, (kind, value) in enumerate(zip(kinds, row, strict=True))
        ) + "</tr>"
        for row in body
    )  # fmt: skip
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(download)} table">'
        f'<table id="table-{download}"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<p class="tools"><button type="button" data-table="{download}">{escape(download)}.csv</button></p>'
    )


def _side_by_side(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], name: str) -> str:
    body = [[str(row["protocol"]), *(_compared(row.get(key), form) for key, _, form in columns)] for row in rows]
    numeric = [False, *(form != "" for _, _, form in columns)]
    return table(["protocol", *(title for _, title, _ in columns)], body, download=name, numeric=numeric)


def _compared(value: Any, form: str) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if form in ("kB", "ms"):
        return f"{value / 1000:,.0f}" if form == "kB" else f"{1000 * value:,.0f}"
    return ("0" if form == ".0e" and value == 0 else format(value, form)).replace("-", "−")


def _cell(value: Any) -> str:
    """Any value as a person reads it."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return (f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}").replace("-", "−")
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value)
    return str(value)


def number(value: float, digits: int) -> str:
    """A number for reading: fixed decimals while they say something, else powers of ten."""
    if not math.isfinite(value):
        return "–"
    small = value != 0 and abs(value) < 10.0 ** -(digits - 1)
    text = f"{value:.2e}" if small or abs(value) >= 1e6 else f"{value:,.{digits}f}"
    return text.replace("-", "−")


# The file


def policy() -> str:
    """What a page may do: draw itself and run its own script."""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {source_hash(static('page.js'))}; "
        "base-uri 'none'; form-action 'none'"
    )


def document(title: str, headline: str, sections: Sequence[str]) -> str:
    return Template(static("page.html")).substitute(
        title=escape(title), policy=policy(), style=static("page.css"), script=static("page.js"),
        headline=headline, help=HELP if any("<figure" in section for section in sections) else "",
        sections="".join(sections),
    )  # fmt: skip
