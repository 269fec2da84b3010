"""`atdm bench`: the table that is printed, and a page that draws growth with the number of agents."""

from typing import Any

import numpy as np

from atdm.report.blocks import Section, Table, html_page
from atdm.report.chart import Chart, Series

Rows = list[dict[str, Any]]
LINES = (  # name, protocol, weights, colour of page.css
    ("plain", "plain", "fitted", 0), ("paper", "paper", "fitted", 2),
    ("blind", "blind", "fitted", 1), ("blind, equal weights", "blind", "equal", 3),
)  # fmt: skip
FOOTPRINT = (("cpu_seconds", "{:.2f}"), ("resident_mb", "{:.0f}"))


def bench_table(rows: Rows) -> Table:
    """Runs beside the floor of the same run."""
    head = ("agents", "protocol", "weights", "processes", "seconds", "floor", "× floor", "set-up s", "ms/agent",
            "kB up", "totals", "messages", "peak MB")  # fmt: skip
    body = []
    for row in rows:
        floor, own = row["floor_seconds"], row["seconds_per_agent"]
        body.append([
            str(row["agents"]), row["protocol"], row["weights"], str(row["processes"]), f"{row['seconds']:.2f}",
            "" if floor is None else f"{floor:.2f}", "" if floor is None else f"{row['seconds'] / floor:.1f}",
            f"{row['setup_seconds']:.2f}", "" if own is None else f"{1000 * own:.1f}",
            f"{row['bytes_up_per_agent'] / 1000:.0f}", str(row["sums"]), str(row["messages"]),
            f"{row['peak_rss_mb']:.0f}",
        ])  # fmt: skip
    return Table("bench", head, body, words=(1, 2))


def footprint_table(rows: Rows) -> Table:
    """What the command takes before it does anything."""
    body = [
        [row["what"], *("" if row[key] is None else form.format(row[key]) for key, form in FOOTPRINT)] for row in rows
    ]
    return Table("footprint", ("what", "CPU s", "resident MB"), body)


def bench_page(rows: Rows) -> str:
    """Time, floor and bytes against the number of agents, and the numbers themselves."""
    agents = sorted({row["agents"] for row in rows})

    def line(name: str, protocol: str, weights: str, colour: int, key: str = "seconds") -> Series:
        found = {row["agents"]: row[key] for row in rows if (row["protocol"], row["weights"]) == (protocol, weights)}
        values = np.array([found.get(n, np.nan) for n in agents], dtype=float)  # not every protocol is run for all
        unit, scale = ("kB", 1e-3) if key == "bytes_up_per_agent" else ("s", 1.0)
        return Series(name=f"{name} [{unit}]", values=scale * values, mark="points", colour=colour)

    def chart(name: str, title: str, y_label: str, caption: str, series: list[Series]) -> Chart:
        return Chart(
            name=name, title=title, caption=caption, x=np.array(agents), x_label="agents", y_label=y_label,
            series=series, axis="log", y_axis="log",
        )  # fmt: skip

    charts = [
        chart("time", "Time of a run", "time [s]",
              "All agents on this one machine, key set-up apart. In a deployment each computes on its own.",
              [line(*how) for how in LINES]),
        chart("bytes", "Bytes", "sent by one agent [kB]",
              "Where a line is level, what an agent sends does not depend on how many agents there are.",
              [line(*how, key="bytes_up_per_agent") for how in LINES]),
        chart("floor", "Blind with fitted weights, beside its floor", "time [s]",
              "The floor is the keystream and the additions of the masks that the run needed, timed alone: no private "
              "sum of these sizes can be faster on this machine.",
              [line("run", "blind", "fitted", 1), line("floor", "blind", "fitted", 2, "floor_seconds"),
               line("key set-up", "blind", "fitted", 3, "setup_seconds")]),
    ]  # fmt: skip
    lead = "Every run beside the floor measured in it, on a synthetic cluster. Times are those of this machine."
    growth, numbers = Section("growth", "Growth", [charts]), Section("numbers", "Numbers", [bench_table(rows)])
    return html_page("atdm bench", f"Growth to {agents[-1]:,} agents", lead, [growth, numbers])
