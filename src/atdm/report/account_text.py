"""An agent's account for its owner: what it has given of each day, with whom, and what is left. No reading is shown."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from atdm.options import OwnerChoice
from atdm.protocol.account import MOST_ASKINGS, Account, Day, Fit, identities_in
from atdm.protocol.plan import DAY
from atdm.protocol.rules import Rules

CHOICES: dict[OwnerChoice, str] = {
    "takes part": "this home takes part",
    "paused": "paused by its owner: this home stays out of every run; `atdm account STATE --resume` ends that",
    "left": "left for good: tell the enrolment authority, who takes the home out with `atdm enroll retire`",
}


def statement(
    account: Account, names: Mapping[bytes, str], choice: OwnerChoice = "takes part", since: str | None = None
) -> dict[str, Any]:
    """One row a day; names: of identity keys, where they are known; choice: of the owner, and since when."""
    days, sent = account.time // DAY, {}
    for day in np.unique(days).tolist():
        own = days == day
        shown, filled = account.shown[own], account.filled[own]
        sent[day] = int(own.sum()), int((shown > 0).sum()), int(filled.sum()), int((shown > 1).sum())
    rows = [_row(day, account.days[day], account, names, sent.get(day, (0, 0, 0, 0))) for day in sorted(account.days)]
    questions = {"answered": len(account.questions), "repeated": sum(n > 1 for n in account.questions.values())}
    return {
        "choice": choice, "since": since, "days": rows, "questions": questions,
        "askings_of_one_question": MOST_ASKINGS,
    }  # fmt: skip


def _row(
    day: int, known: Day, account: Account, names: Mapping[bytes, str], sent: tuple[int, int, int, int]
) -> dict[str, Any]:
    company, fit = identities_in(account.companies.get(known.company, b"")), account.fit_of(day)
    return {
        "day": str(datetime.fromtimestamp(day * DAY, UTC).date()),
        "in": known.judged,
        "weights": known.weights,
        "company": len(company) or None,
        "with": sorted(names.get(identity, identity[:4].hex()) for identity in company),
        "rows_sent": sent[0],
        "rows_shown": sent[1],
        "rows_filled": sent[2],
        "rows_repeated": sent[3],
        "totals": fit.totals,
        "model_released": fit.released,
        "left": _left(known, fit, len(company), shown=sent[1]),
    }


def _left(known: Day, fit: Fit, agents: int, shown: int) -> str:
    """What can still be asked of this day, in words."""
    if known.weights is None:
        return "equal or fitted weights" if known.judged else "nothing: too few readings"
    if known.weights == "opened":
        return "the same again: the aggregator has every reading of it"
    if known.weights == "equal":
        all_shown = known.step and shown * known.step >= DAY
        return "nothing: all rows shown" if all_shown else "rows not shown yet, to the same company"
    if fit.released or (known.fit and not fit.days):  # a day of a fit, or one that was shown under its weights
        return "rows after the fit, under its weights"
    return f"{max(Rules().totals_for(agents) - fit.totals, 0)} totals, to the same company"


def account_table(found: dict[str, Any]) -> RenderableType:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("day", "in", "weights", "company", "rows sent", "shown", "filled", "totals", "model", "left"):
        table.add_column(column, justify="left" if column in ("day", "in", "weights", "left") else "right")
    for row in found["days"]:
        inside = {True: "in", False: "out", None: ""}[row["in"]]
        numbers = (row["company"] or "", row["rows_sent"], row["rows_shown"], row["rows_filled"], row["totals"])
        model = "yes" if row["model_released"] else ""
        table.add_row(row["day"], inside, row["weights"] or "", *map(str, numbers), model, row["left"])
    partners = sorted({name for row in found["days"] for name in row["with"]})
    told = f"with {len(partners)} agents: {', '.join(partners[:12])}{', …' if len(partners) > 12 else ''}"
    asked = f"{found['questions']['answered']} questions of fits answered, {found['questions']['repeated']} repeated"
    last = choice_text(found["choice"], found["since"])
    return Group(table, *(Text(text) for text in ((told,) if partners else ()) + (asked, last)))


def choice_text(choice: OwnerChoice, since: str | None) -> str:
    """What the owner decided, and since when, in one line."""
    return CHOICES[choice] + (f" (since {since})" if since else "")
