"""Draw the information flow of `blind`: docs/figures/blind.svg, and one figure per message beside it.

    python tools/flow_figure.py            writes the figures
    python tools/flow_figure.py --check    exits with 1 if they are not current

Colours follow the reader's light or dark setting, also where the file is shown as an image.
"""

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #17202b; }
.b { font-weight: 600; } .s { font-size: 12px; fill: #56616e; } .t { font-size: 17px; font-weight: 650; }
.box { fill: #ffffff; stroke: #c6cbd0; } .own { fill: #eaf3fb; stroke: #0b6fc2; }
.agg { fill: #f4f4f2; stroke: #56616e; }
.go { stroke: #0b6fc2; stroke-width: 2.2; fill: none; } .back { stroke: #56616e; stroke-width: 2; fill: none; }
.open { stroke: #b4530a; stroke-width: 2.6; fill: none; } .h-go { fill: #0b6fc2; } .h-back { fill: #56616e; }
.h-open { fill: #b4530a; } .orange { fill: #9a4608; } .blue { fill: #0b5cad; } .ring { fill: none; stroke: #0b6fc2;
stroke-dasharray: 5 4; } .paper { fill: #fcfcfa; } .word { fill: #c6cbd0; } .mine { fill: #0b6fc2; }
@media (prefers-color-scheme: dark) {
text { fill: #e9edf1; } .s { fill: #a3afbb; } .box { fill: #171e26; stroke: #3b4753; } .own { fill: #12273b;
stroke: #4fa8f5; } .agg { fill: #20262d; stroke: #a3afbb; } .go { stroke: #4fa8f5; } .back { stroke: #a3afbb; }
.open { stroke: #f0954a; } .h-go { fill: #4fa8f5; } .h-back { fill: #a3afbb; } .h-open { fill: #f0954a; }
.orange { fill: #f0954a; } .blue { fill: #6db6ff; } .ring { stroke: #4fa8f5; } .paper { fill: #10151b; }
.word { fill: #4a5661; } .mine { fill: #4fa8f5; } }
"""


@dataclass(frozen=True)
class Message:
    """One message of `blind` as the figures show it; the names are those of its phases."""

    phase: str
    sends: tuple[str, ...]  # what an agent puts in, before check words, veil and masks
    opens: str  # who can read the total
    learn: tuple[str, ...]  # what they read
    released: bool = False


MESSAGES = (
    Message("secret", ("leader: the group secret g, sealed", "for each agent under their pair key"), "each agent",
            ("the group secret g, from its own box",)),
    Message("rows", ("1 for each row it lacks",), "agents", ("how many lack each row",)),
    Message("open", ("its load h_i, row by row", "x_i/√K: 16 fractional bits, dithered"), "agents",
            ("the load total h = Σ h_i", "the first total V_0 = Σ x_i/√K")),
    Message("step", ("p_i · x_i: 16 fractional bits, dithered", "its Gram row, its residual, signs"), "agents",
            ("the next total V_k = Σ p_i x_i", "Gram row, residual, negative weights")),
    Message("signs", ("the square of its residual, the sign of", "its weight at several ridges"), "agents",
            ("the residual of the final span", "the count of negative weights")),
    Message("seal", ("leader: the model, c and a salt, sealed", "under a key of the group"), "other agents",
            ("the numbers, which each works out", "again from the totals it opened")),
    Message("release", ("leader: the key to its box; others: zeros;", "each: a signature on what is in the box"),
            "aggregator", ("the key, and so model, metrics, h and s;", "taken only if all signatures agree"),
            released=True),
    Message("offer", ("0 for each row it can give, a random", "word for each it cannot"), "aggregator and agents",
            ("which rows everybody can give",), released=True),
    Message("show", ("x_i and h_i on the rows that everybody", "offered, dithered"), "aggregator",
            ("Σ x_i and Σ h_i, row by row",), released=True),
)  # fmt: skip


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, w: float, h: float, kind: str = "box") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="10" class="{kind}"/>'


def arrow(x0: float, y0: float, x1: float, y1: float, kind: str) -> str:
    """A horizontal arrow, head included."""
    d = 9 if x1 > x0 else -9
    head = f"M{x1:g} {y1:g}l{-d} -5v10z"
    return f'<path class="{kind}" d="M{x0:g} {y0:g}L{x1 - d:g} {y1:g}"/><path class="h-{kind}" d="{head}"/>'


def words(x: float, y: float, count: int, kind: str) -> str:
    """A row of little squares: words of a message."""
    return "".join(f'<rect x="{x + 9 * i:g}" y="{y:g}" width="7" height="7" class="{kind}"/>' for i in range(count))


def svg(width: int, height: int, title: str, description: str, body: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="t d">\n<title id="t">{escape(title)}</title>\n<desc id="d">{escape(description)}</desc>\n'
        f'<style>{STYLE}</style>\n<rect class="paper" width="{width}" height="{height}" rx="12"/>\n'
        + "\n".join(body) + "\n</svg>\n"
    )  # fmt: skip


def overview() -> str:
    body = [text(30, 40, "Agents run the fit", "t"), text(640, 40, "The aggregator adds", "t")]
    body.append('<rect class="ring" x="18" y="56" width="330" height="330" rx="14"/>')
    for i, (name, note) in enumerate((("Agent 1", "leads: adds the veil"), ("Agent 2", ""), ("Agent K", ""))):
        y = 72 + 92 * i
        body += [box(32, y, 302, 78, "own"), text(48, y + 24, name, "b"), text(318, y + 24, note, "s", "end"),
                 text(48, y + 46, "temperatures x_i, load h_i, weight ξ_i", "blue"),
                 text(48, y + 65, "stay here", "s")]  # fmt: skip
    body += [text(183, 367, "share a group secret; each re-derives every step", "s", "middle")]
    body += [box(640, 56, 282, 330, "agg"), text(660, 86, "Aggregator", "b"),
             text(660, 114, "sees sums of masked words:", "s"), words(660, 126, 27, "word"),
             text(660, 154, "uniform to it; altered ones do not open", "s")]  # fmt: skip
    body += [arrow(348, 112, 640, 112, "go"), text(494, 100, "its readings × its part, masked", "", "middle"),
             text(494, 131, "check words, veil, pairwise masks", "s", "middle"),
             arrow(640, 186, 348, 186, "back"), text(494, 174, "the masked total, to everybody", "", "middle"),
             text(494, 205, "only agents can take the veil off", "s", "middle"),
             text(494, 238, "↻ at most 5 totals,", "b", "middle"),
             text(494, 258, "few bits, dithered", "b", "middle")]  # fmt: skip
    body += [arrow(348, 318, 640, 318, "open"), text(494, 306, "release: one sum without veil", "orange", "middle"),
             text(494, 337, "opens only if every agent sends its part", "s", "middle")]  # fmt: skip
    body += [text(660, 232, "learns", "s"), text(660, 256, "the model", "b orange"),
             text(660, 278, "h: load of the cluster", "orange"), text(660, 300, "s: aggregate temperature", "orange"),
             text(660, 328, "and metrics, ridge, status, residuals of", "s"),
             text(660, 346, "fit and solver, number and timing of", "s"),
             text(660, 364, "messages, who took part", "s")]  # fmt: skip
    description = (
        "Agents keep temperatures, load and weight. They send masked and veiled words to the aggregator, which adds "
        "them and returns totals that only agents can open. After at most 5 totals one last sum without veil gives "
        "the aggregator the model, the cluster's load and its aggregate temperature."
    )
    return svg(940, 404, "The information flow of blind with fitted weights", description, body)


def figure(number: int, m: Message) -> str:
    body = [text(20, 30, f"{number}  {m.phase}", "t")]
    body += [box(20, 46, 316, 84, "own"), text(34, 68, "every agent puts in", "s"),
             *(text(34, 91 + 20 * i, line) for i, line in enumerate(m.sends))]  # fmt: skip
    sealed = m.phase in ("secret", "seal")
    wrapped = "sealed" if sealed else "masks, no veil" if m.released else "checks, veil, masks"
    body += [arrow(336, 88, 464, 88, "open" if m.released else "go"), text(398, 78, wrapped, "s", "middle")]
    body += [box(464, 46, 110, 84, "agg"), text(519, 84, "aggregator", "b", "middle"),
             text(519, 106, "relays" if sealed else "adds", "s", "middle")]  # fmt: skip
    reads = f"{m.opens} {'read' if m.opens.endswith('agents') else 'reads'}"
    body += [arrow(574, 88, 616, 88, "open" if m.released else "back"),
             box(616, 46, 306, 84, "agg" if m.released else "own"),
             text(630, 68, reads, "orange s" if m.released else "s"),
             *(text(630, 91 + 20 * i, line) for i, line in enumerate(m.learn))]  # fmt: skip
    description = f"Agents put in {'; '.join(m.sends)}. {reads}: {'; '.join(m.learn)}."
    return svg(940, 148, f"Message {number} of blind: {m.phase}", description, body)


def figures() -> dict[str, str]:
    """File name → content."""
    each = {f"blind-{m.phase}.svg": figure(i, m) for i, m in enumerate(MESSAGES, 1)}
    return {"blind.svg": overview(), **each}


def main() -> None:
    stale = [name for name, content in figures().items()
             if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != content]  # fmt: skip
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"{', '.join(stale)}: not current: run python tools/flow_figure.py")
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in figures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
