"""Every attack in which somebody acts, by name: who mounts it, where it applies, and which rule answers it.

Those that only look at a run that everybody followed are in audit.py; their rules are here too (`LOOKING`).
docs/attacks.md has the same names, with what each finds on a build without its rule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from atdm.lab.attacks import companies, dishonest, forge, oracle, refits
from atdm.lab.attacks.dishonest import Mounted
from atdm.lab.attacks.stage import Stage
from atdm.protocol.plan import Plan
from atdm.run import rows_of_plan

COLLUDER = 0  # place of the agent that helps, where one does

Where = Literal["equal", "fitted", "moments", "paper"]  # ways to weight of `blind`, and the other protocols
Act = Callable[[Stage, Plan, int], Mounted]  # agents that were asked nothing yet, plan, seed


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    adversary: str
    where: tuple[Where, ...]
    rule: str  # that answers it, in the words of docs/spec.md; of `paper` and `moments`: why it is mounted
    act: Act
    tries: int = 1  # where it depends on a choice or on luck; the best counts


AGGREGATOR, CURIOUS = "aggregator", "aggregator+1"
DISHONEST, SECRET = "dishonest aggregator", "dishonest aggregator+1"
BLIND: tuple[Where, ...] = ("fitted", "equal")
OPENED: tuple[Where, ...] = ("paper", "moments")

MASKS = "masks cancel in the sum of the whole company only"
CHAIN = "masks depend on everything an agent was shown"
CHECK = "check words, range and count of a total"
ONE_COMPANY = "a day has one company"
ONE_FIT = "a day is opened to one fit, and shown under one weighting"
FEW_TOTALS = "totals over a day are few, whatever they were asked with"
SATURATES = "words computed from readings saturate; nobody refuses by name"
IN_ORDER = "questions come in order, and a nonce masks one vector"
NOT_CLAIMED = "not claimed; the account bounds it: totals over a day are few"

ATTACKS: tuple[Attack, ...] = (
    Attack("offset on a total", DISHONEST, ("fitted",), CHECK, lambda s, p, n: dishonest.offset(s, p)),
    Attack("equivocation", DISHONEST, ("fitted",), f"{CHECK}; {CHAIN}", lambda s, p, n: dishonest.equivocate(s, p)),
    Attack("equivocation", DISHONEST, ("equal",), CHAIN, lambda s, p, n: dishonest.inconsistent_offer(s, p)),
    Attack("inconsistent broadcast", DISHONEST, OPENED, CHAIN, lambda s, p, n: dishonest.inconsistent_question(s, p)),
    Attack("vanished agent", DISHONEST, ("fitted", *OPENED), MASKS, lambda s, p, n: dishonest.withheld(s, p)),
    Attack("vanished agent", DISHONEST, ("equal",), MASKS, lambda s, p, n: dishonest.withheld(s, rows_of_plan(p))),
    Attack("replay", DISHONEST, ("fitted", *OPENED), IN_ORDER, lambda s, p, n: dishonest.replay(s, p)),
    Attack("masked words", AGGREGATOR, ("fitted", "paper"), MASKS, lambda s, p, n: dishonest.masked_words(s, p)),
    Attack("masked words", AGGREGATOR, ("equal",), MASKS, lambda s, p, n: dishonest.masked_words(s, rows_of_plan(p))),
    Attack("chosen weights", DISHONEST, ("paper",), "an agent computes its weight itself",
           lambda s, p, n: dishonest.chosen_weights(s, p)),
    Attack("appendices A and B", AGGREGATOR, ("paper",), MASKS, lambda s, p, n: dishonest.appendices(s, p)),
    # Who is in a sum
    Attack("companies that differ", DISHONEST, BLIND, ONE_COMPANY, lambda s, p, n: dishonest.chosen_companies(s, p)),
    Attack("companies that differ", SECRET, ("equal",), ONE_COMPANY,
           lambda s, p, n: dishonest.chosen_companies(s, p, COLLUDER)),
    Attack("dropped answers", SECRET, ("equal",), "a company has ten owners, and two thirds of the roster's",
           lambda s, p, n: companies.small_company(s, p, COLLUDER)),
    Attack("older roster", DISHONEST, ("equal",), "a roster's number never goes down",
           lambda s, p, n: companies.older_roster(s, p)),
    Attack("new keys", DISHONEST, ("equal",), "a key enrolled later gives no earlier day",
           lambda s, p, n: companies.new_keys(s, p)),
    Attack("in and out", DISHONEST, ("equal",), "within a block of 28 days companies only shrink",
           lambda s, p, n: companies.in_and_out(s, p)),
    Attack("home that left", AGGREGATOR, ("equal",), "not claimed: what days with and without a home say of it",
           lambda s, p, n: companies.home_that_left(s, p)),
    Attack("around midnight", AGGREGATOR, ("equal",), "no row within six hours of a change of company",
           lambda s, p, n: companies.around_midnight(s, p)),
    Attack("around noon", DISHONEST, ("equal",), ONE_COMPANY, lambda s, p, n: companies.around_noon(s, p)),
    # What a home gives of itself
    Attack("late readings", AGGREGATOR, ("equal",), "nobody is silent in a sum: a row opens if everybody gives it",
           lambda s, p, n: companies.late_readings(s, p)),
    Attack("corrected readings", AGGREGATOR, ("equal",), "readings stay as first sent",
           lambda s, p, n: companies.corrected_readings(s, p)),
    Attack("same question", AGGREGATOR, ("equal",), "the same question gets the same answer, four times in all",
           lambda s, p, n: companies.same_question(s, p)),
    # Fits of the same days
    Attack("repeated runs", AGGREGATOR, BLIND, ONE_FIT, lambda s, p, n: dishonest.repeated_runs(s, p)),
    Attack("repeated runs", CURIOUS, BLIND, ONE_FIT, lambda s, p, n: dishonest.repeated_runs(s, p, COLLUDER)),
    Attack("refits", AGGREGATOR, ("fitted",), ONE_FIT, lambda s, p, n: refits.refits(s, p)),
    Attack("long seasons", AGGREGATOR, ("fitted",), f"the season is 24 h, with five rows per parameter; {ONE_FIT}",
           lambda s, p, n: refits.long_seasons(s, p)),
    Attack("fits broken off", CURIOUS, ("fitted",), FEW_TOTALS, lambda s, p, n: refits.broken_off(s, p, COLLUDER)),
    Attack("coarse steps", CURIOUS, ("fitted",), f"a day has one grid; {FEW_TOTALS}",
           lambda s, p, n: refits.coarse_steps(s, p, COLLUDER)),
    Attack("other clips", CURIOUS, ("fitted",), f"an agent asks for its own clip; {ONE_FIT}",
           lambda s, p, n: refits.other_clips(s, p, COLLUDER)),
    Attack("chosen plan", CURIOUS, ("fitted",), f"{FEW_TOTALS}; deployed agents bound λ, training share and window",
           lambda s, p, n: dishonest.chosen_plan(s, p, COLLUDER, n), tries=len(dishonest.CHOSEN)),
    # Forged totals
    Attack("refusals by name", SECRET, ("fitted",), SATURATES,
           lambda s, p, n: oracle.refusals_by_name(s, p, COLLUDER)),
    Attack("forged scalars", SECRET, ("fitted",), "sums that depend on readings are booked",
           lambda s, p, n: oracle.forged_scalars(s, p, COLLUDER)),
    Attack("counts of signs", SECRET, ("fitted",), "counts of signs are booked, three a day",
           lambda s, p, n: oracle.counts_of_signs(s, p, COLLUDER)),
    Attack("lying leader", SECRET, ("fitted",), "every agent signs the hash of what is released; hashes are not summed",
           lambda s, p, n: oracle.lying_leader(s, p, COLLUDER)),
    Attack("numbers in refusals", AGGREGATOR, ("fitted",), "refusals are fixed texts",
           lambda s, p, n: oracle.numbers_in_refusals(s, p)),
    Attack("steered totals", SECRET, ("fitted",), NOT_CLAIMED,
           lambda s, p, n: forge.steered_totals(s, p, COLLUDER, n), tries=3),
    Attack("live feed", SECRET, ("fitted",), NOT_CLAIMED,
           lambda s, p, n: forge.live_feed(s, p, COLLUDER, n), tries=3),
)  # fmt: skip

LOOKING = {  # attacks on what parties of `blind` were shown anyway, and the rule behind each
    "source separation": FEW_TOTALS,
    "extension of known days": FEW_TOTALS,
    "algebra on totals": FEW_TOTALS,
    "lattice on totals": "readings are dithered, and totals have 16 fractional bits",
}


def attacks_on(where: Where) -> list[Attack]:
    return [attack for attack in ATTACKS if where in attack.where]
