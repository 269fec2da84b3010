"""How a fit weighs its agents, how good the weights are, and who is missing: in words for people."""

from atdm.kernel.descent import Status
from atdm.protocol.account import BLOCK, GROWN, OTHER_COMPANY, OTHER_GRID, OTHER_WEIGHTING, SPENT, TOO_MANY_DAYS
from atdm.protocol.company import TOO_FEW
from atdm.run import Fit, percent

HELPS = {  # by the fixed words with which an agent stays out
    TOO_FEW: "complete the readings, or choose a window in which they are there",
    OTHER_WEIGHTING: "choose later days, or weigh these as they were weighed before",
    OTHER_GRID: "keep the step with which these days were summed",
    SPENT: "choose days that were not fitted yet",
    TOO_MANY_DAYS: "use equal weights, or wait",
    OTHER_COMPANY: "choose later days, or ask the company of these",
    GROWN: f"who joins waits for the next {BLOCK} days",
    "no answer": "see that the agent runs, or wait longer for it",
    "left out": "the others keep more days without it; a window in which it has all days takes it in",
}


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


def remedies(fit: Fit) -> list[str]:
    """For each reason to stay out, what would help."""
    return [f"{why}: {HELPS[why]}" for why in dict.fromkeys(fit.out.values()) if why in HELPS]
