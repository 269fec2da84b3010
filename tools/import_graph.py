"""Draw which room of src/atdm imports which: docs/figures/rooms.svg, and rooms-before.svg of an older commit.

    python tools/import_graph.py            writes the figures
    python tools/import_graph.py --check    exits with 1 if they are not current
    python tools/import_graph.py --print    prints the graph of the code as it is, in the form of BEFORE

A matrix, because that many arrows cannot be read: row imports column, rooms in the order of the import contract
(pyproject.toml), low to high. All marks left of the diagonal: no room imports one that comes after it, so there is no
cycle. A number counts the pairs of modules.
"""

import re
import sys
import tomllib
from collections import Counter
from html import escape
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "figures"
ENTRY = ("__init__", "__main__")  # the package itself: public names, and `python -m atdm`

Graph = dict[str, dict[str, int]]  # room → room it imports → pairs of modules

# Commit 59dbd2c, printed by `--print` there: a room, then what it imports.
BEFORE = """
errors
crypto errors 4
kernel errors 4
data errors 8
model errors 1 kernel 3 data 1
protocol errors 20 crypto 36 kernel 33 data 3
policy errors 1 protocol 3
transport errors 7 crypto 3 protocol 12 policy 1
run errors 1 crypto 1 kernel 5 data 2 model 1 protocol 12 transport 2
observe errors 1 data 2 model 1 protocol 6 policy 1 transport 2 run 1
events protocol 1
deploy errors 1 crypto 1 data 3 protocol 13 transport 4 run 1 observe 1 events 1
watch errors 1 data 1 model 1 protocol 3 policy 1 transport 3 observe 1 deploy 1
rehearse errors 1 data 2 model 1 protocol 6 transport 3 run 1 observe 1 events 1 deploy 1
use errors 7 crypto 2 kernel 13 data 13 model 3 protocol 9 transport 2 run 6
attacks errors 5 crypto 3 kernel 15 data 1 protocol 30 transport 1 run 3
report errors 6 kernel 18 data 7 protocol 5 run 9 observe 1 events 2 rehearse 1 use 6
audit errors 1 kernel 1 data 1 protocol 4 run 1 attacks 9
cli errors 1 kernel 2 data 3 transport 1 run 1 observe 1 events 1 deploy 1 watch 1 rehearse 1 use 5 report 14
"""
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #17202b; }
.b { font-weight: 600; } .s { font-size: 12px; fill: #56616e; } .t { font-size: 16px; font-weight: 650; }
.paper { fill: #fcfcfa; } .line { stroke: #e3e6e9; } .own { fill: #e3e6e9; } .mark { fill: #0b6fc2; }
.wrong { fill: #b4530a; } .n { fill: #ffffff; font-size: 11px; }
@media (prefers-color-scheme: dark) {
text { fill: #e9edf1; } .s { fill: #a3afbb; } .paper { fill: #10151b; } .line { stroke: #2b343d; }
.own { fill: #2b343d; } .mark { fill: #2f7fc4; } .wrong { fill: #f0954a; } .n { fill: #ffffff; } }
"""
CELL, LEFT, TOP = 26, 108, 128


def rooms_of_the_code() -> Graph:
    """Every room in the order of the contract, with what it imports."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    order = [room for layer in reversed(contract["contracts"][0]["layers"]) for room in re.findall(r"\w+", layer)]
    graph = grimp.build_graph("atdm")
    pairs: Counter[tuple[str, str]] = Counter()
    found: set[str] = set()
    for module in graph.modules:
        room = _room(module)
        found.add(room)
        for other in graph.find_modules_directly_imported_by(module):
            pairs[room, _room(other)] += 1
    inside = [room for room in order if room in found] + sorted(found - {*order, *ENTRY})
    return {room: {other: pairs[room, other] for other in inside if other != room and pairs[room, other]}
            for room in inside}  # fmt: skip


def read(text: str) -> Graph:
    rows = [line.split() for line in text.strip().splitlines()]
    return {row[0]: dict(zip(row[1::2], map(int, row[2::2]), strict=True)) for row in rows}


def written(graph: Graph) -> str:
    return "\n".join(" ".join([room, *(f"{o} {n}" for o, n in imports.items())]) for room, imports in graph.items())


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def against(graph: Graph) -> list[tuple[str, str]]:
    """Imports of a room that comes later: where there are none, there is no cycle."""
    place = {room: k for k, room in enumerate(graph)}
    return [(room, other) for room, imports in graph.items() for other in imports if place[other] > place[room]]


def drawn(graph: Graph, title: str) -> str:
    names, wrong = list(graph), against(graph)
    width, height = LEFT + CELL * len(names) + 24, TOP + CELL * len(names) + 20
    pairs = sum(map(len, graph.values()))
    counted = f"{len(names)} rooms, {pairs} pairs of rooms, " + (
        f"{len(wrong)} against the direction" if wrong else "no cycle"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}: {counted}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<text class="t" x="12" y="24">{escape(title)}</text>',
        f'<text class="s" x="12" y="43">row imports column; {counted}</text>',
    ]
    for k, name in enumerate(names):
        middle = k * CELL + CELL / 2
        x, y = LEFT + middle, TOP + middle
        parts += [
            f'<text class="b" x="{LEFT - 8}" y="{y + 4:g}" text-anchor="end">{name}</text>',
            f'<text x="{x + 4:g}" y="{TOP - 8}" transform="rotate(-60 {x + 4:g} {TOP - 8})">{name}</text>',
            f'<line class="line" x1="{LEFT}" y1="{y:g}" x2="{LEFT + CELL * len(names)}" y2="{y:g}"/>',
            f'<rect class="own" x="{x - 5:g}" y="{y - 5:g}" width="10" height="10" rx="2"/>',
        ]
    for row, name in enumerate(names):
        for other, number in graph[name].items():
            x, y = LEFT + names.index(other) * CELL + CELL / 2, TOP + row * CELL + CELL / 2
            kind = "wrong" if (name, other) in wrong else "mark"
            parts += [
                f'<rect class="{kind}" x="{x - 11:g}" y="{y - 10:g}" width="22" height="20" rx="4">'
                f"<title>{name} imports {other}: {number}</title></rect>",
                f'<text class="n" x="{x:g}" y="{y + 4:g}" text-anchor="middle">{number}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


def figures() -> dict[str, str]:
    return {
        "rooms-before.svg": drawn(read(BEFORE), "Rooms of src/atdm, before"),
        "rooms.svg": drawn(rooms_of_the_code(), "Rooms of src/atdm"),
    }


def main() -> None:
    if "--print" in sys.argv[1:]:
        print(written(rooms_of_the_code()))
        return
    made = figures()
    if "--check" not in sys.argv[1:]:
        for name, content in made.items():
            (FOLDER / name).write_text(content, encoding="utf-8")
        return
    for name, content in made.items():
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != content:
            sys.exit(f"docs/figures/{name}: not current: run python tools/import_graph.py")


if __name__ == "__main__":
    main()
