"""Growth with the number of agents as a figure: time, bytes and the floor. Needs matplotlib (atdm[report])."""

from pathlib import Path
from typing import Any

from atdm.errors import UsageError

GREY = "0.5"  # legible on a light page and on a dark one
INK: Any = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
LINES = (  # name, protocol, weights, colour
    ("plain", "plain", "fitted", "0.5"), ("paper", "paper", "fitted", "tab:orange"),
    ("blind", "blind", "fitted", "tab:blue"), ("blind, equal weights", "blind", "equal", "tab:green"),
)  # fmt: skip


def bench_figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Save the figure, in the format of the file's ending."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'atdm[report]'") from None
    with rc_context(INK):
        _draw(rows, path, Figure(figsize=(9.0, 3.6), layout="constrained"))


def _draw(rows: list[dict[str, Any]], path: Path, figure: Any) -> None:
    time, upload = figure.subplots(1, 2)
    for name, protocol, weights, colour in LINES:
        own = [row for row in rows if (row["protocol"], row["weights"]) == (protocol, weights)]
        agents = [row["agents"] for row in own]
        time.plot(agents, [row["seconds"] for row in own], "o-", color=colour, label=name)
        upload.plot(agents, [row["bytes_up_per_agent"] / 1000 for row in own], "o-", color=colour, label=name)
        if name == "blind":
            time.plot(agents, [row["floor_seconds"] for row in own], "o--", color=colour, label="floor of blind")
            time.plot(agents, [row["setup_seconds"] for row in own], "o:", color=colour, label="key set-up of blind")
    time.set_ylabel("seconds, all agents")
    upload.set_ylabel("kB sent by one agent")
    for panel in (time, upload):
        panel.set(xscale="log", yscale="log", xlabel="agents")
        panel.grid(True, which="major", color=GREY, alpha=0.2)
        panel.legend(frameon=False)
    figure.savefig(path, transparent=True)
