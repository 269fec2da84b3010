"""Who learned what, in words and as a diagram, both drawn from the ledger and from nothing else."""

from collections.abc import Iterable
from html import escape
from math import prod
from typing import Any

from atdm.result import Fit

Row = dict[str, Any]

# What an entry of the ledger means to a reader. The last word on each is docs/spec.md.
MEANING = {
    "load total": "the load of the whole cluster",
    "state": "the aggregate temperature",
    "coefficients": "the model's coefficients",
    "metrics": "how well the model fits",
    "basis total": "weighted sums of all agents' dithered temperatures",
    "scalars": "counts and sums of single numbers over all agents",
    "weights": "every agent's weight",
    "moments": "second moments: all temperatures up to a rotation",
    "masked transform": "transformed data: all temperatures up to a rotation",
    "everything": "every reading of every agent",
}
OF_EQUAL_WEIGHTS = {**MEANING, "state": "the mean temperature", "scalars": "which rows everybody gave"}
GRAVE = ("everything", "moments", "masked transform", "weights")  # entries that are about single agents


def meaning(what: str, equal: bool) -> str:
    """An entry in words; equal: whether rows were collected with equal weights."""
    return (OF_EQUAL_WEIGHTS if equal else MEANING).get(what, "")


def collected(fit: Fit) -> bool:
    """Whether the agents showed rows with equal weights, and did nothing else."""
    return fit.protocol == "blind" and fit.weighting == "equal"


def what(rows: Iterable[Row], party: str) -> list[str]:
    """The kinds of things a party learned, in the order it learned them."""
    return list(dict.fromkeys(row["what"] for row in rows if row["party"] == party and prod(row["shape"])))


def aggregator_sentence(fit: Fit) -> str:
    """What the aggregator learned, in one sentence."""
    kinds = what(fit.ledger, "aggregator")
    if "everything" in kinds:
        return "The aggregator saw every reading of every agent."
    if "moments" in kinds or "masked transform" in kinds:
        others = [MEANING[k] for k in kinds if k in ("load total", "weights", "state")]
        return f"The aggregator learned all temperatures up to a rotation, {_and(others)}."
    told = [meaning(k, collected(fit)) for k in kinds]
    if not told:
        return "The aggregator learned nothing."
    return f"The aggregator learned {_and(told)}: no other number from anybody's readings."


def numbers(rows: Iterable[Row], party: str) -> int:
    """How many numbers a party learned."""
    return sum(prod(row["shape"]) * row["times"] for row in rows if row["party"] == party)


def diagram(fit: Fit) -> str:
    """Agents on one side, what the sums opened to whom on the other."""
    rows = list(fit.ledger)
    private = 2 * fit.agents * len(fit.state)
    keeps = "each keeps its own temperatures and load"
    if "everything" in what(rows, "aggregator"):
        keeps = "every reading is handed over"
    elif fit.protocol == "blind" and not collected(fit):
        keeps += " and its weight"
    parties = (("aggregator", "The aggregator", "learned"), ("agents", "Each agent", "learned about the others"))
    sinks = [_party(rows, *party, collected(fit), fit.model.order) for party in parties]
    if fit.cost.seconds_per_agent is None and fit.protocol != "plain":  # deployed
        sinks[1] = _peers_elsewhere(fit)
    return f"""
<div class="flow" role="group" aria-label="Who learned what">
<div class="node source">{_people(fit.agents)}<b>{fit.agents} agents</b>
<span>{private:,} private numbers; {keeps}</span></div>
<div class="hop">{_arrow()}<span>{escape(_carried(fit))}</span></div>
<div class="sinks">{"".join(sinks)}</div>
</div>"""


def card(name: str, aggregator: str, peers: str) -> str:
    """One protocol of a comparison: what its ledgers say, an entry a line (lab/compare.py)."""
    equal = name.startswith("blind") and "equal" in name
    parts = "".join(
        f"<h4>{party}</h4><ul>{''.join(_entry(entry, equal) for entry in entries.split(', '))}</ul>"
        for party, entries in (("The aggregator", aggregator), ("Each agent, about the others", peers))
    )
    return f'<div class="node card"><h3>{escape(name)}</h3>{parts}</div>'


def _entry(entry: str, equal: bool) -> str:
    grave = ' class="grave"' if entry.startswith(GRAVE) else ""
    means = next((meaning(kind, equal) for kind in MEANING if kind in entry), "")
    return f"<li{grave}>{escape(entry)}{f'<small>{escape(means)}</small>' if means else ''}</li>"


def _carried(fit: Fit) -> str:
    if fit.protocol == "plain":
        return "in the clear"
    if collected(fit):
        return "two masked sums that open to the aggregator: which rows everybody can give, and these rows"
    if fit.protocol == "blind":
        return f"{fit.cost.sums} basis totals and short sums, masked: the aggregator adds and cannot open them"
    return "masked sums that open to the aggregator"


def _peers_elsewhere(fit: Fit) -> str:
    """Agents of a deployment keep their ledgers themselves; what they opened follows from the protocol."""
    opened = f"opened {fit.cost.sums} weighted sums of all agents' dithered temperatures and sums of single numbers; "
    if collected(fit):
        opened = "was told which rows everybody gave, and no number of anybody; "
    text = f"{opened if fit.protocol == 'blind' else ''}keeps the ledger of what it learned itself"
    return f'<div class="node sink"><b>Each agent</b> <span>{escape(text)}</span></div>'


def _means(row: Row, equal: bool, order: int) -> str:
    if row["what"] == "coefficients" and list(row["shape"]) == [order]:
        return "α of the model; the others follow from it, load and temperature"
    return meaning(row["what"], equal)


def _party(rows: list[Row], party: str, name: str, verb: str, equal: bool, order: int) -> str:
    own = [row for row in rows if row["party"] == party and prod(row["shape"])]
    if not own:
        return f'<div class="node sink"><b>{name}</b> <span>{verb} nothing</span></div>'
    items = "".join(_item(row, _means(row, equal, order)) for row in own)
    total = numbers(rows, party)
    return (
        f'<div class="node sink"><b>{name}</b> <span>{verb} {total:,} number{"s" if total != 1 else ""}</span>'
        f'<ul class="learned">{items}</ul></div>'
    )


def _item(row: Row, means: str) -> str:
    shape = " × ".join(f"{n:,}" for n in row["shape"])
    often = f"{row['times']:,} × " if row["times"] > 1 else ""
    grave = ' class="grave"' if row["what"] in GRAVE else ""
    return (
        f"<li{grave}><span>{escape(row['what'])}</span><span class=size>{often}{shape}</span>"
        f"<small>{escape(means)}</small></li>"
    )


def _people(agents: int) -> str:
    """A dot per agent, to a hundred."""
    shown = min(agents, 100)
    dots = "".join(f'<circle cx="{5 + 8 * (i % 20)}" cy="{5 + 8 * (i // 20)}" r="3"/>' for i in range(shown))
    high = 2 + 8 * (1 + (shown - 1) // 20)
    return f'<svg class="dots" viewBox="0 0 162 {high}" aria-hidden="true">{dots}</svg>'


def _arrow() -> str:
    return (
        '<svg class="arrow" viewBox="0 0 24 40" aria-hidden="true"><path d="M12 1v32"/><path d="M5 28l7 8 7-8"/></svg>'
    )


def _and(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
