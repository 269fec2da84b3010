"""What `atdm rehearse` prints: the deployment beside the same fit in one process."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.deploy.rehearse import Rehearsal
from atdm.kernel.design import LAGGED, SYMBOLS, UNITS
from atdm.report.words import under


def verdict(done: Rehearsal) -> str:
    if done.identical:
        return "every released number is the same to the last bit"
    return f"coefficients differ by at most {done.difference:.1e} of the largest of their kind"


def rehearsal_summary(done: Rehearsal) -> RenderableType:
    deployed, alone = done.deployed, done.in_process
    table = Table("", "over NATS", "in one process", box=None, header_style="dim", pad_edge=False)
    for name in LAGGED:
        first = 1 if name == "alpha" else 0
        for lag, (a, b) in enumerate(zip(deployed["model"][name], alone["model"][name], strict=True), first):
            table.add_row(f"{SYMBOLS[name]} [{UNITS[name]}] t-{lag}", f"{a:.6f}", f"{b:.6f}")
    for name, label in (("rmse", "RMSE [K]"), ("r2", "R² [-]")):
        a, b = (d["metrics"]["test"]["free_run"][name] for d in (deployed, alone))
        table.add_row(f"test, free run, {label}", f"{a:.6f}", f"{b:.6f}")
    cost, rounds = deployed["cost"], deployed["rounds"]
    how = under(deployed["protocol"], deployed["weighting"])
    head = Text(f"{deployed['agents']} agents in {done.processes} processes, {how}\n")
    took = (
        f"{rounds['count']} round{'s' if rounds['count'] != 1 else ''} after key set-up, median "
        f"{1000 * rounds['median_seconds']:.0f} ms, slowest {1000 * rounds['slowest_seconds']:.0f} ms; "
        f"{cost['bytes_up_per_agent'] / 1000:.0f} kB up and {cost['bytes_down_per_agent'] / 1000:.0f} kB down per "
        f"agent; {cost['seconds']:.1f} s, key set-up {cost['setup_seconds']:.1f} s"
    )
    seen = []
    if done.observed is not None:
        o = done.observed
        same = "the same to the last bit in one process" if o["identical"] else "not the same in one process"
        off = "none" if o["difference_c"] is None else f"within {o['difference_c']:.1e} K of Σ ξ_i x_i without dither"
        seen = [Text(f"observed {len(o['rows'])} of {o['asked']} rows after the fit: {same}, {off}")]
    notes = [Text(f"note: {note}", style="yellow") for note in deployed["notes"]]
    return Group(head, table, Text(), Text(verdict(done), style="bold"), Text(took), *seen, *notes)
