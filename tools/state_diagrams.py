"""Draw the state tables of both roles and the phases of the protocols: docs/figures/states-*.svg.

    python tools/state_diagrams.py            writes the figures
    python tools/state_diagrams.py --check    exits with 1 if they are not current

What is accepted where comes from the tables of the code (agent.py, aggregator.py). Where an accepted message can lead,
and which phase follows which, stands here, in LEADS_TO and PHASES. tests/reliability/test_matrix.py compares it all
with what the roles do.
"""

import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path

from atdm.protocol.agent import Agent, AgentState
from atdm.protocol.aggregator import Aggregator, AggregatorState
from atdm.protocol.messages import Announce

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #17202b; }
.b { font-weight: 600; } .s { font-size: 12px; fill: #56616e; } .t { font-size: 16px; font-weight: 650; }
.state { fill: #eaf3fb; stroke: #0b6fc2; } .end { fill: #f4f4f2; stroke: #56616e; }
.go { stroke: #0b6fc2; stroke-width: 1.8; fill: none; } .head { fill: #0b6fc2; } .paper { fill: #fcfcfa; }
.halo { paint-order: stroke; stroke: #fcfcfa; stroke-width: 5px; }
@media (prefers-color-scheme: dark) {
text { fill: #e9edf1; } .s { fill: #a3afbb; } .state { fill: #12273b; stroke: #4fa8f5; }
.end { fill: #20262d; stroke: #a3afbb; } .go { stroke: #4fa8f5; } .head { fill: #4fa8f5; } .paper { fill: #10151b; }
.halo { stroke: #10151b; } }
"""

# Handler of a table → the states in which it can leave the role; "same": where it was. Some messages lead elsewhere.
LEADS_TO: dict[str, dict[str, tuple[str, ...]]] = {
    "agent": {
        "_join": ("joined", "aborted"),
        "_agree": ("running", "aborted"),
        "_run": ("same", "aborted"),
        "_run Finished": ("done",),
        "_stop": ("aborted",),
        "_say_lost": ("aborted",),
    },
    "aggregator": {
        "_gather": ("same", "running", "aborted"),
        "_stays_out": ("same", "running", "aborted"),
        "_run": ("same", "done", "aborted"),
        "_run Secrets": ("same", "aborted"),
        "_run Seal": ("same", "aborted"),
        "_refused": ("aborted",),
    },
}
# A failed store halts an agent in whatever it was doing; only a restart leads out, to a run resumed or lost.
UNASKED = {
    "agent": (
        ("running", "halted", "store failed"),
        ("halted", "lost", "restart, not resumed"),
        ("running", "lost", "restart, not resumed"),
    ),
    "aggregator": (("gathering", "running", "deadline"), ("gathering", "aborted", "deadline")),
}
# Of a running agent → those that can follow. In `blind` of a member: the leader has the secret already, makes the seal,
# and waits for neither.
PHASES: dict[str, dict[str, tuple[str, ...]]] = {
    "blind": {
        "secret": ("rows",),
        "rows": ("open",),
        "open": ("step",),
        "step": ("step", "signs"),
        "signs": ("signs", "seal", "release"),
        "seal": ("release",),
        "release": (),
    },
    "opened": {"question": ("consent", "question"), "consent": ("question",)},
    "collect": {"offer": ("show",), "show": ()},
}

BOX = (104, 38)

Point = tuple[float, float]
Edge = tuple[str, str, str]  # from, to, label


def targets(role: str, handler: str, message: str) -> tuple[str, ...]:
    return LEADS_TO[role].get(f"{handler} {message}", LEADS_TO[role].get(handler, ()))


def table_edges(role: str) -> list[Edge]:
    """(from, to, messages), from the role's own table."""
    table = Agent.TRANSITIONS if role == "agent" else Aggregator.TRANSITIONS
    found: dict[tuple[str, str], list[str]] = {}
    for (state, message), handler in table.items():
        for target in targets(role, handler.__name__, message.__name__):
            found.setdefault((str(state), str(state) if target == "same" else target), []).append(message.__name__)
    for a, b, label in UNASKED[role]:
        found.setdefault((a, b), []).append(label)
    return [(a, b, ", ".join(names)) for (a, b), names in found.items()]


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(at: Point, name: str, kind: str) -> str:
    (x, y), (w, h) = at, BOX
    rect = f'<rect x="{x - w / 2:g}" y="{y - h / 2:g}" width="{w}" height="{h}" rx="9" class="{kind}"/>'
    return rect + text(x, y + 5, name, "b")


def border(at: Point, towards: Point) -> Point:
    """Where the line from the centre of a box to another point leaves the box."""
    dx, dy = towards[0] - at[0], towards[1] - at[1]
    scale = min(BOX[0] / 2 / abs(dx) if dx else 9e9, BOX[1] / 2 / abs(dy) if dy else 9e9)
    return at[0] + dx * scale, at[1] + dy * scale


def arrow(a: Point, b: Point, bend: float) -> tuple[str, Point]:
    """A curved arrow from box to box, and where its label goes."""
    if a == b:
        x, y = a[0], a[1] - BOX[1] / 2
        path = f"M{x - 20:g} {y:g}C{x - 34:g} {y - 40:g} {x + 34:g} {y - 40:g} {x + 20:g} {y - 6:g}"
        return f'<path class="go" d="{path}"/>' + head((x + 25, y - 16), (x + 20, y)), (x, y - 41)
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = (dx * dx + dy * dy) ** 0.5
    middle = ((a[0] + b[0]) / 2 - dy / length * bend, (a[1] + b[1]) / 2 + dx / length * bend)
    p, q = border(a, middle), border(b, middle)
    path = f'<path class="go" d="M{p[0]:.4g} {p[1]:.4g}Q{middle[0]:.4g} {middle[1]:.4g} {q[0]:.4g} {q[1]:.4g}"/>'
    label = (0.25 * p[0] + 0.5 * middle[0] + 0.25 * q[0], 0.25 * p[1] + 0.5 * middle[1] + 0.25 * q[1])
    return path + head(middle, q), label


def head(source: Point, tip: Point) -> str:
    dx, dy = tip[0] - source[0], tip[1] - source[1]
    length = (dx * dx + dy * dy) ** 0.5
    ux, uy = dx / length, dy / length
    base = (tip[0] - 9 * ux, tip[1] - 9 * uy)
    left, right = (base[0] - 4.5 * uy, base[1] + 4.5 * ux), (base[0] + 4.5 * uy, base[1] - 4.5 * ux)
    points = " ".join(f"{x:.4g},{y:.4g}" for x, y in (tip, left, right))
    return f'<polygon class="head" points="{points}"/>'


def diagram(
    title: str, size: tuple[int, int], places: dict[str, Point], edges: Iterable[Edge],
    bends: dict[tuple[str, str], float], note: str = "",
) -> str:  # fmt: skip
    lines, labels, edges = [], [text(24, size[1] - 20, note, "s", "start")] if note else [], list(edges)
    for a, b, words in edges:
        line, at = arrow(places[a], places[b], bends.get((a, b), 0.0))
        lines.append(line)
        names = words.split(", ")
        rows = [", ".join(names[i : i + 2]) for i in range(0, len(names), 2)]
        labels += [text(at[0], at[1] + 4 + 15 * (i - (len(rows) - 1) * (1 if a == b else 0.5)), row, "s halo")
                   for i, row in enumerate(rows)]  # fmt: skip
    ends = ("done", "aborted", "halted", "lost", "release")
    boxes = [box(at, name, "end" if name in ends else "state") for name, at in places.items()]
    description = ". ".join(f"From {a} to {b}: {words or 'next'}" for a, b, words in edges) + "."
    width, height = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(description)}</desc>\n<style>{STYLE}</style>\n'
        f'<rect class="paper" width="{width}" height="{height}" rx="12"/>\n'
        + "\n".join([text(24, 32, title, "t", "start"), *lines, *boxes, *labels]) + "\n</svg>\n"
    )  # fmt: skip


def agent() -> str:
    """An announcement is answered in every state but one: said in words, or the arrows hide the rest."""
    places = {"waiting": (90, 130), "joined": (330, 130), "running": (620, 130), "done": (880, 130),
              "aborted": (330, 330), "lost": (620, 330), "halted": (880, 330)}  # fmt: skip
    open_to = [str(state) for state, message in Agent.TRANSITIONS if message is Announce]
    shown = [("waiting", "joined", "Announce")]
    for a, b, words in table_edges("agent"):
        names = [name for name in words.split(", ") if name != "Announce"]
        if names:
            shown.append((a, b, ", ".join(names)))
    note = f"Announce: joined, in or out (running: if newer); aborted if the readings fail; from {', '.join(open_to)}"
    return diagram("An agent", (970, 420), places, shown, {("joined", "aborted"): 0.0}, note)


def aggregator() -> str:
    places = {"gathering": (110, 130), "running": (430, 130), "done": (790, 130), "aborted": (430, 290)}
    return diagram("The aggregator", (870, 350), places, table_edges("aggregator"), {("gathering", "aborted"): 30.0})


def blind() -> str:
    places = {"secret": (90, 120), "rows": (250, 120), "open": (410, 120), "step": (570, 120), "signs": (730, 120),
              "seal": (730, 250), "release": (900, 250)}  # fmt: skip
    words = {("secret", "rows"): "Secret", ("signs", "release"): "Total (leader)", ("seal", "release"): "Seal"}
    edges = [(a, b, words.get((a, b), "Total")) for a, targets in PHASES["blind"].items() for b in targets]
    note = "A member; the leader begins with rows, makes the seal and waits for none."
    return diagram("Phases of a running agent of blind, fitted weights", (970, 330), places, edges, {}, note)


def opened() -> str:
    places = {"question": (130, 120), "consent": (470, 120), "done": (130, 250)}
    words = {("question", "consent"): "Ask of a sum", ("consent", "question"): "Receipts of all neighbours",
             ("question", "question"): "Ask of weights (paper)"}  # fmt: skip
    phases = PHASES["opened"]
    edges = [(a, b, words[a, b]) for a, targets in phases.items() for b in targets]
    edges += [(phase, "done", "Finished") for phase in phases]
    bends = {("question", "consent"): -34.0, ("consent", "question"): -34.0}
    return diagram("Phases of a running agent of moments and paper", (640, 300), places, edges, bends)


def collected() -> str:
    places = {"offer": (130, 120), "show": (470, 120), "done": (470, 240)}
    phases = PHASES["collect"]
    edges = [(a, b, "Total of the offers") for a, targets in phases.items() for b in targets]
    edges += [(phase, "done", "Finished") for phase in phases]
    return diagram("Phases of a running agent whose rows are collected", (640, 290), places, edges, {})


def check_tables() -> None:
    """The figures show every state there is."""
    for role, states in (("agent", AgentState), ("aggregator", AggregatorState)):
        drawn = {end for a, b, _ in table_edges(role) for end in (a, b)}
        if drawn != {str(state) for state in states}:
            sys.exit(f"states of the {role} and of its figure differ: {drawn ^ set(states)}")


def figures() -> dict[str, str]:
    """File name → content."""
    check_tables()
    each = {"agent": agent(), "aggregator": aggregator(), "blind": blind(), "opened": opened(),
            "collect": collected()}  # fmt: skip
    return {f"states-{name}.svg": content for name, content in each.items()}


def main() -> None:
    stale = [name for name, content in figures().items()
             if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != content]  # fmt: skip
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"{', '.join(stale)}: not current: run python tools/state_diagrams.py")
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in figures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
