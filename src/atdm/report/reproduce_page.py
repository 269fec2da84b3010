"""The page of `atdm reproduce` in the look of every report, from the same blocks as its markdown."""

import re
from collections.abc import Callable
from html import escape

import numpy as np

from atdm.kernel.thermal import free_run
from atdm.lab.reproduce import Reproduction, blocks
from atdm.report import learned
from atdm.report.chart import Chart, Series
from atdm.report.figures import seconds_of
from atdm.report.page import document, drawn, section, table
from atdm.types import FloatArray

OURS, OTHER = 1, 2  # colours of page.css


def html_page(found: Reproduction) -> str:
    """The blocks of the markdown page; where it places a picture, this one has a figure with its data."""
    title, lead, *rest = blocks(found)
    head = f'<p class="eyebrow">atdm reproduce</p><h1>{_words(title[2:])}</h1><p class="lead">{_words(lead)}</p>'
    sections: list[str] = []
    name, body = "", ""
    for block in [*rest, "## "]:
        if block.startswith("## "):
            slug = re.sub(r"\W+", "-", name.partition(":")[0].lower()).strip("-")
            sections.append(section(slug, _words(name), "", body))
            name, body = block[3:], ""
        else:
            body += _block(block, found, name)
    return document(re.sub(r"[*`]", "", title[2:]), head, [s for s in sections if s])


def _block(block: str, found: Reproduction, name: str) -> str:
    if block.startswith("|"):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        numeric = [all(re.fullmatch(r"[-−\d.e+]*|–", row[i]) for row in rows) for i in range(len(head))]
        rows = [[cell.replace("-", "−") if numeric[i] else cell for i, cell in enumerate(row)] for row in rows]
        slug = re.sub(r"\W+", "-", name.partition(":")[0].partition(",")[0].lower())
        return table([cell.replace("`", "") for cell in head], rows, download=slug, numeric=numeric)
    picture = re.fullmatch(r"!\[.*\]\((\w+)\.png\)", block)
    return FIGURES[picture[1]](found) if picture else f"<p>{_words(block)}</p>"


def _words(text: str) -> str:
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", text)


# Figures


def _weights(found: Reproduction) -> str:
    private, centre = found.private.weights, found.centre.weights
    if private is None or centre is None:
        return ""
    order = centre.sort_values(ascending=False).index
    return drawn([Chart(
        name="weights", title="Weights", x=np.arange(1, len(order) + 1), x_label="agent, by weight",
        y_label="weight ξ [-]",
        caption="Bars: a trusted centre that keeps ξ ≥ 0. Line: the paper's protocol, weights free. Where the line is "
        "below zero, the dropped constraint mattered.",
        series=[
            Series(name="non-private, ξ ≥ 0 [-]", values=centre[order].to_numpy(float), mark="bar", colour=OURS),
            Series(name="private, ξ free [-]", values=private[order].to_numpy(float), colour=OTHER),
        ],
        labels=[str(name) for name in order],
    )])  # fmt: skip


def _state(found: Reproduction) -> str:
    fit, train = found.private, found.private.inputs.train
    state, c = fit.state.to_numpy(float), fit.model.coefficients
    parts = ((0, train), (train, len(state)))
    predicted = np.concatenate([free_run(c, fit.inputs, state, a, b) for a, b in parts])
    time, (low, high) = seconds_of(fit.state.index), found.band
    return drawn([Chart(
        name="state", title="Aggregate state", x=time, x_label="time (UTC)", y_label="temperature [°C]", axis="time",
        caption="The aggregate state lies within the band from the coldest to the warmest zone. Dashed: the model "
        "running alone, once through training and once through the shaded test rows.",
        series=[
            Series(name="coldest to warmest zone [°C]", values=low, upper=high, mark="band", colour=OTHER),
            Series(name="aggregate state [°C]", values=state),
            Series(name="free run [°C]", values=predicted, colour=OURS, dashed=True),
        ],
        shade_from=float(time[train]),
    )])  # fmt: skip


def _masking(found: Reproduction) -> str:
    return drawn([
        Chart(
            name=f"masking-{number}", title=f"Iteration {number}", x=np.arange(len(part.plain), dtype=float),
            x_label="training row", y_label="[K]", small=True,
            caption="What one zone has, and what is uploaded for it: unlike to the eye, alike to linear algebra.",
            series=[
                Series(name="first column of τ̂Wᵀ [K]", values=part.masked, colour=OTHER),
                Series(name="first column of τ̂ [K]", values=part.plain, colour=OURS),
            ],
        )
        for number, part in enumerate(found.masking, 1)
    ])  # fmt: skip


def _inference(found: Reproduction) -> str:
    periods = np.array([i.periods for i in found.inference], dtype=float)

    def log(values: list[float]) -> FloatArray:
        return np.asarray(np.log10(np.maximum(values, 1e-16)), dtype=float)

    errors = (
        ("least squares, median", [float(np.median(i.errors)) for i in found.inference], OTHER),
        ("closed form", [i.closed_error for i in found.inference], OURS),
    )
    return drawn([Chart(
        name="inference", title="How far the inferred temperatures are off", x=periods, x_label="periods T",
        y_label="log₁₀ of the error in K",
        caption="More periods help the curious. The closed form needs a few more rows than agents, and is then exact.",
        series=[Series(name=f"{name} [log₁₀ K]", values=log(values), colour=c) for name, values, c in errors],
    )])  # fmt: skip


def _exchange(found: Reproduction) -> str:
    fits = [fit for fit in (found.private, found.blind) if fit is not None]
    return "".join(f"<h3>Protocol {escape(fit.protocol)}</h3>{learned.diagram(fit)}" for fit in fits)


FIGURES: dict[str, Callable[[Reproduction], str]] = {
    "weights": _weights, "state": _state, "masking": _masking, "inference": _inference, "exchange": _exchange,
}  # fmt: skip
