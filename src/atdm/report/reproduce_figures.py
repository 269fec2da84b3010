"""The figures of `atdm reproduce`, as PNG and SVG. Needs matplotlib (atdm[report])."""

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np

from atdm.errors import UsageError
from atdm.kernel.thermal import free_run
from atdm.lab.reproduce import Reproduction
from atdm.run import Fit

FORMATS = ("png", "svg")


def figures(found: Reproduction) -> dict[str, bytes]:
    """File name → content."""
    drawn: dict[str, Callable[[Reproduction], Any]] = {
        "weights": _weights, "state": _state, "masking": _masking, "inference": _inference, "exchange": _exchange,
    }  # fmt: skip
    files = {}
    for name, draw in drawn.items():
        figure = draw(found)
        for kind in FORMATS:
            content = BytesIO()
            figure.savefig(content, format=kind, dpi=120)
            files[f"{name}.{kind}"] = content.getvalue()
    return files


def _figure(rows: int = 1, columns: int = 1, height: float = 3.2) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError('figures need matplotlib: pip install "atdm[report]"') from None
    figure = Figure(figsize=(9.0, height), layout="constrained")
    return figure, figure.subplots(rows, columns)


def _weights(found: Reproduction) -> Any:
    figure, (values, errors) = _figure(2, height=5.0)
    private, centre = found.private.weights, found.centre.weights
    if private is None or centre is None:
        raise UsageError("a simulation has weights: reproduce from a cluster, not from a deployment")
    at = np.arange(len(centre))
    values.bar(at - 0.2, centre, 0.4, label="non-private, ξ ≥ 0")
    values.bar(at + 0.2, private.reindex(centre.index), 0.4, label="private, ξ free")
    values.set_ylabel("aggregation coefficient ξ")
    values.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    share = 100 * (private.reindex(centre.index) - centre) / centre.where(centre > 0)
    errors.bar(at, share, color="0.4")
    errors.set(xlabel="agent", ylabel="relative error [%]")
    return figure


def _state(found: Reproduction) -> Any:
    figure, axis = _figure()
    result, train = found.private, found.private.inputs.train
    state = result.state.to_numpy(float)
    days = np.arange(len(state)) * result.model.step.total_seconds() / 86400
    c = result.model.coefficients
    predicted = np.concatenate([
        free_run(c, result.inputs, state, a, b) for a, b in ((0, train), (train, len(state)))
    ])  # fmt: skip
    low, high = found.band
    axis.fill_between(days, low, high, color="0.85", label="coldest to warmest zone")
    axis.plot(days, state, label="aggregate state")
    axis.plot(days, predicted, "--", label="free run of the model")
    axis.axvline(days[train], color="0.4", linewidth=0.8)
    axis.set(xlabel="days; the line parts training from test", ylabel="temperature [°C]")
    axis.legend(ncols=3, fontsize="small")
    return figure


def _masking(found: Reproduction) -> Any:
    figure, axes = _figure(len(found.masking), height=2.2 * len(found.masking))
    for number, (axis, part) in enumerate(zip(np.atleast_1d(axes), found.masking, strict=True), 1):
        axis.plot(part.plain, linewidth=0.8, label="first column of τ̂")
        axis.plot(part.masked, linewidth=0.8, label="first column of τ̂Wᵀ")
        axis.set(title=f"iteration {number}", ylabel="[K]")
    np.atleast_1d(axes)[0].legend(fontsize="small")
    np.atleast_1d(axes)[-1].set_xlabel("training row")
    return figure


def _inference(found: Reproduction) -> Any:
    figure, (errors, times) = _figure(1, 2)
    periods = [str(i.periods) for i in found.inference]
    errors.boxplot([i.errors for i in found.inference], tick_labels=periods)
    errors.plot(range(1, len(periods) + 1), [i.closed_error for i in found.inference], "r*", label="closed form")
    errors.set(yscale="log", xlabel="periods T", ylabel="error of the temperatures [K]")
    errors.legend()
    times.plot(periods, [float(np.median(i.seconds)) for i in found.inference], "o-", label="least squares")
    times.plot(periods, [i.closed_seconds for i in found.inference], "r*", label="closed form")
    times.set(yscale="log", xlabel="periods T", ylabel="time of one inference [s]")
    times.legend()
    return figure


def _exchange(found: Reproduction) -> Any:
    """Two parties and what passes between them, per protocol; every line is a row of a ledger."""
    results = [r for r in (found.private, found.blind) if r is not None]
    figure, axes = _figure(1, len(results), height=3.6)
    for axis, result in zip(np.atleast_1d(axes), results, strict=True):
        axis.set_axis_off()
        axis.set(xlim=(0, 1), ylim=(0, 1), title=f"protocol {result.protocol}, {result.agents} agents")
        _party(axis, 0.0, "aggregator learned", result, "aggregator")
        _party(axis, 0.58, "each agent learned", result, "agents")
        cost = result.cost
        arrows = ((0.62, "<-", f"{cost.bytes_up_per_agent / 1e3:.0f} kB up"),
                  (0.42, "->", f"{cost.bytes_down_per_agent / 1e3:.0f} kB down"))  # fmt: skip
        for height, style, text in arrows:
            axis.annotate("", (0.57, height), (0.43, height), arrowprops={"arrowstyle": style, "color": "tab:blue"})
            axis.text(0.5, height + 0.03, text, ha="center", fontsize="x-small", color="tab:blue")
        axis.text(0.5, 0.28, f"per agent,\n{cost.rounds} messages", ha="center", fontsize="x-small", color="tab:blue")
    return figure


def _party(axis: Any, left: float, title: str, result: Fit, party: str) -> None:
    lines = []
    for row in result.ledger:
        if row["party"] == party:
            size = "×".join(map(str, row["shape"])) or "1"
            lines.append(f"{row['what']} {size}" + (f", {row['times']} times" if row["times"] > 1 else ""))
    axis.add_patch(_box(left, 0.05, 0.42, 0.92))
    axis.text(left + 0.02, 0.93, title, weight="bold", va="top", fontsize="small")
    text = "\n".join(lines or ["nothing of the others"])
    axis.text(left + 0.02, 0.82, text, va="top", fontsize="xx-small", linespacing=1.7)


def _box(left: float, bottom: float, width: float, height: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, bottom), width, height, fill=False, edgecolor="0.4")
