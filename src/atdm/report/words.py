"""How a fit weighs its agents, how good the weights are, and who is missing: in words for people."""

import math
from collections.abc import Sequence

import pandas as pd

from atdm.kernel.descent import Status
from atdm.model.horizons import Horizon
from atdm.protocol.account import BLOCK, GROWN, OTHER_COMPANY, OTHER_GRID, OTHER_WEIGHTING, SPENT, TOO_MANY_DAYS
from atdm.protocol.company import BEFORE_FIRST, LEFT, NOT_YET, OTHER_STEP, PAUSED, TOO_FEW
from atdm.result import Fit, percent

HELPS = {  # by the fixed words with which an agent stays out
    TOO_FEW: "complete the readings, or choose a window in which they are there",
    NOT_YET: "ask again when they have come in, or choose an earlier end",
    BEFORE_FIRST: "choose a later start, or give the agent its earlier readings",
    OTHER_STEP: "ask for the step of its readings, or a multiple",
    OTHER_WEIGHTING: "choose later days, or weigh these as they were weighed before",
    OTHER_GRID: "keep the step with which these days were summed",
    SPENT: "choose days that were not fitted yet",
    TOO_MANY_DAYS: "use equal weights, or wait",
    OTHER_COMPANY: "choose later days, or ask the company of these",
    GROWN: f"who joins waits for the next {BLOCK} days",
    PAUSED: "its owner decides; after a pause it comes in with the next block",
    LEFT: "retire it with `atdm enroll retire`",
    "no answer": "see that the agent runs, or wait longer for it",
    "left out": "the others keep more days without it; a window in which it has all days takes it in",
}
ASTRAY = -10.0  # R² below which a run did not follow the measurements at all


def weighting(protocol: str, weights: str) -> str:
    if weights == "equal":
        return "equal weights"
    return "weights fitted by the agents" if protocol == "blind" else "fitted weights"


def under(protocol: str, weights: str) -> str:
    return f"protocol {protocol}, {weighting(protocol, weights)}"


def search(fit: Fit) -> str:
    """How the search for the weights ended; nothing where they are equal."""
    if fit.weighting == "equal":
        return ""
    if fit.status is Status.NOT_CONVERGED:
        return f"the descent did not converge in {fit.iterations} iterations"
    if fit.protocol == "blind":
        return f"within {percent(fit.excess)} of the best possible at ridge {fit.ridge:g}"
    return f"converged after {fit.iterations} iterations at ridge {fit.ridge:g}"


def goodness(found: Sequence[Horizon]) -> str:
    """How good the model that is used is, beside no model at all; found: its errors on the test rows."""
    judged = [h for h in found if h.rmse is not None]
    if not judged:
        return "There are no test rows without a gap to judge the model by."
    last = judged[-1]
    shorter = ", ".join(f"{h.rmse:.2f} K after {h.hours} h" for h in judged[:-1])
    return (
        f"On rows it has not seen the model is off by {shorter}{' and ' if shorter else ''}{last.rmse:.2f} K after "
        f"{last.hours} h, where “no change” is off by {last.persistence_rmse:.2f} K."
    )


def no_better(found: Sequence[Horizon]) -> list[str]:
    """At which horizons the model is not worth having; found: its errors on the test rows."""
    poor = [h for h in found if h.rmse is not None and h.persistence_rmse is not None and h.rmse >= h.persistence_rmse]
    return [
        f"after {h.hours} h the model is no better than saying “no change” on the test rows: it is off by {h.rmse:.2f} "
        f"K, “no change” by {h.persistence_rmse:.2f} K; more rows, or a cluster of more homes, may help"
        for h in poor
    ]


def planning(fit: Fit) -> str:
    """Whether one can plan with it, and why; nothing where there are too few rows for any model."""
    judged = fit.judged
    if judged is None:
        return ""
    if judged.coefficients is None or judged.excitation is None:
        return f"No: {judged.refusal()}."
    e = judged.excitation
    gain = f"{e.response_24h:.3g} ± {e.standard_error:.2g} K"
    return f"Yes, with a model made for planning: 1 kW more for 24 h warms the cluster by {gain}."


def restarted(fit: Fit) -> str:
    """How much a free run over the test rows says: one that starts anew after gaps is given the answer each time."""
    days = len(fit.test) * fit.model.step / pd.Timedelta("24h")
    if not fit.restarts:
        return "one run"
    times = f"started anew {fit.restarts} times after gaps"
    return f"{times}: more than once a week, so that it says little" if 7 * fit.restarts > days else times


def r2_text(value: float, digits: int = 3) -> str:
    """R² as a person reads it: far below zero no digits that tell nothing."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}" if value >= ASTRAY else f"{value:,.0f}" if value > -1e6 else f"{value:.0e}"
    return text.replace("-", "−")


def curve(fit: Fit) -> list[str]:
    """Where the load is electricity: what is known about what a kW heats."""
    cop = fit.released.cop
    return [] if cop is None else [cop.words()]


def remedies(fit: Fit) -> list[str]:
    """For each reason to stay out, what would help."""
    return [f"{why}: {HELPS[why]}" for why in dict.fromkeys(fit.out.values()) if why in HELPS]
