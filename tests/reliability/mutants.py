"""Every rule taken out in turn: what is rewritten, and the claim of the tests that must then fail.

A mutant is a piece of a function's syntax tree that occurs exactly once in it, and what stands there instead, or
nothing; or a constant, or an agent's own limit, and another value of it. Pieces are compared as trees, so that layout
does not count; one that no longer occurs is an error that names the mutant.
"""

import ast
import copy
import inspect
import math
import sys
import textwrap
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from itertools import product
from types import ModuleType, SimpleNamespace

import pytest

from atdm.crypto import graph, keys, prg, ring, sums
from atdm.crypto.sums import Layout
from atdm.data import gaps, quantum
from atdm.kernel import descent
from atdm.kernel.descent import RidgeLadder
from atdm.protocol import account, collect, company, desk, messages, opened, plan, readings, roster, rules, store
from atdm.protocol import agent as agents
from atdm.protocol import session as sessions
from atdm.protocol.account import Account
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.blind import direction, layouts, release, script, veil
from atdm.protocol.blind.desk import BlindDesk
from atdm.protocol.blind.release import Sealed
from atdm.protocol.blind.script import BlindPart
from atdm.protocol.blind.veil import Veil
from atdm.protocol.collect import CollectPart
from atdm.protocol.part import AgentContext
from atdm.protocol.rules import Rules
from tests.crypto import test_graph, test_keys, test_prg, test_ring, test_vectors
from tests.data import test_gaps
from tests.lab.attacks import test_directions, test_fine_state
from tests.protocol import (
    test_account,
    test_collect,
    test_liar,
    test_opened,
    test_owner,
    test_review,
    test_store,
)
from tests.reliability import test_bad_input, test_kept, test_matrix, test_ridge, test_rounding, test_secrets
from tests.reliability import test_rules as claims
from tests.reliability.places import desk_places, place


@dataclass(frozen=True)
class Edit:
    """A piece of a function, and what stands there instead; None: it is not there."""

    owner: object  # module or class
    name: str
    old: str
    new: str | None


@dataclass(frozen=True)
class Constant:
    """Another value of a number, wherever the package knows it by this name."""

    owner: ModuleType
    name: str
    value: object


@dataclass(frozen=True)
class Limit:
    """Another value of an agent's own limit where its owner says nothing."""

    name: str
    value: object


@dataclass(frozen=True)
class Mutant:
    group: str
    rule: str
    edits: tuple[Edit | Constant | Limit, ...]
    killer: Callable[..., object]

    @property
    def claim(self) -> str:
        """What fails: the name of a test, in words."""
        test, name = self.killer, ""
        while isinstance(test, partial):
            vectors = [given["name"] for given in test.args if isinstance(given, dict) and "name" in given]
            name = f" ({vectors[0]})" if vectors else ""
            test = test.args[0] if test.func is with_patch else test.func
        return test.__name__.removeprefix("test_").replace("_", " ") + name


def apply(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    trees: dict[tuple[object, str], ast.Module] = {}
    for edit in mutant.edits:
        if isinstance(edit, Limit):
            monkeypatch.setitem(Rules.__init__.__kwdefaults__, edit.name, edit.value)
        elif isinstance(edit, Constant):
            true = getattr(edit.owner, edit.name)
            for module in known("atdm."):
                if getattr(module, edit.name, None) == true:
                    monkeypatch.setattr(module, edit.name, edit.value)
        else:
            tree = trees.setdefault((edit.owner, edit.name), tree_of(edit.owner, edit.name))
            rewriter = Rewriter(edit)
            rewriter.visit(tree)
            if rewriter.found != 1:
                what = f"{mutant.group}, {mutant.rule}: {edit.old!r} occurs {rewriter.found} times in {edit.name}"
                raise LookupError(f"{what}: move the mutant along with the source")
    for (owner, name), tree in trees.items():
        replace(owner, name, tree, monkeypatch)
    forget()


class Rewriter(ast.NodeTransformer):
    """Puts the new piece in place of the old one, wherever that is."""

    def __init__(self, edit: Edit) -> None:
        self.old, self.new, self.found = piece(edit.old), None if edit.new is None else piece(edit.new), 0
        if isinstance(self.new, ast.stmt) and isinstance(self.old, ast.expr):
            self.old = ast.Expr(self.old)

    def visit(self, node: ast.AST) -> ast.AST | None:
        if ast.dump(node) == ast.dump(self.old):
            self.found += 1
            return copy.deepcopy(self.new)
        node = self.generic_visit(node)
        return node.values[0] if isinstance(node, ast.BoolOp) and len(node.values) == 1 else node


def piece(text: str) -> ast.AST:
    """An expression where it is one, else a statement."""
    (found,) = ast.parse(textwrap.dedent(text)).body
    return found.value if isinstance(found, ast.Expr) else found


def forget() -> None:
    """What the package worked out once and keeps."""
    for module in known("atdm."):
        for kept in list(vars(module).values()):
            if hasattr(kept, "cache_clear"):
                kept.cache_clear()


def known(*rooms: str) -> list[ModuleType]:
    return [module for path, module in sys.modules.items() if path.startswith(rooms)]


def tree_of(owner: object, name: str) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(inspect.getattr_static(owner, name))))


def replace(owner: object, name: str, tree: ast.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a rewritten function in place of the true one, wherever that is known."""
    true = inspect.getattr_static(owner, name)
    made: dict[str, object] = {}
    for node in ast.walk(tree):  # outside its class super() does not know where it stands
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = [ast.Name(owner.__name__, ast.Load()), ast.Name("self", ast.Load())]
    code = compile(ast.fix_missing_locations(tree), f"<mutant of {name}>", "exec")
    exec(code, sys.modules[true.__module__].__dict__, made)
    changed = made[name]
    monkeypatch.setattr(owner, name, changed)
    for table in (Agent.TRANSITIONS, Aggregator.TRANSITIONS):
        for key in [key for key, value in table.items() if value is true]:
            monkeypatch.setitem(table, key, changed)
    for module in known("atdm.", "tests."):
        if getattr(module, name, None) is true:
            monkeypatch.setattr(module, name, changed)


# Killers that are not one test of the suite as it stands


def with_patch(test: Callable[..., object], *args: object) -> None:
    """A test that takes monkeypatch."""
    with pytest.MonkeyPatch.context() as own:
        test(*args, own)


def swapped(test: Callable[..., object]) -> Callable[..., object]:
    """A test whose monkeypatch comes first."""

    @wraps(test)
    def last(*args: object) -> object:
        return test(args[-1], *args[:-1])

    return last


def no_key_and_no_reading_is_on_the_wire() -> None:
    log = SimpleNamespace(text="", at_level=lambda _level: nullcontext())
    with pytest.MonkeyPatch.context() as own:
        test_secrets.test_no_key_and_no_reading_is_on_the_wire_or_in_the_log("blind", own, log)


def no_reading_is_on_the_wire_of_rows_collected() -> None:
    log = SimpleNamespace(text="", at_level=lambda _level: nullcontext())
    with pytest.MonkeyPatch.context() as own:
        test_secrets.test_no_key_reading_or_weight_is_on_the_wire_of_rows_collected_or_in_the_log(own, log)


def a_nonce_is_accepted_once() -> None:
    test_prg.test_a_nonce_is_accepted_once(prg.Stream(test_prg.KEY).add)


def of_an_agent(where: str, **options: object) -> Callable[[], object]:
    """Every message to an agent that stands here."""
    test = test_matrix.test_an_agent_answers_or_ignores_every_message_in_every_state
    return partial(test, place(where, **options))


def of_the_aggregator(name: str) -> Callable[[], object]:
    test = test_matrix.test_the_aggregator_takes_or_ignores_every_message_in_every_state
    return partial(test, next(desk for desk in desk_places() if desk.name == name))


def vector(name: str) -> Callable[[], object]:
    """A vector, in the package's hands."""
    case = next(case for case in test_vectors.CASES if case["name"] == name)
    if "output" in case:
        return partial(test_vectors.test_vector_is_reproduced, case, test_vectors.OURS)
    return partial(test_vectors.test_bad_vector_fails_at_its_step, case)


def every(test: Callable[..., object], **only: list[object]) -> Callable[[], object]:
    """All cases of a test, or some of one parameter."""
    axes = []
    for mark in [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]:
        names = mark.args[0] if isinstance(mark.args[0], tuple) else mark.args[0].replace(" ", "").split(",")
        values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
        chosen = [case for case in values if names[0] not in only or case[0] in only[names[0]]]
        axes.append([dict(zip(names, case, strict=True)) for case in chosen])

    @wraps(test)
    def all_of_them() -> None:
        for parts in product(*axes):
            given = {name: value for part in parts for name, value in part.items()}
            with pytest.MonkeyPatch.context() as own:
                if "monkeypatch" in inspect.signature(test).parameters:
                    given["monkeypatch"] = own
                test(**given)

    return all_of_them


def case(test: Callable[..., object], number: int) -> Callable[[], object]:
    """One of the cases of a test that has several."""
    mark = next(mark for mark in test.pytestmark if mark.name == "parametrize")
    chosen = mark.args[1][number]
    return partial(test, *(chosen if isinstance(chosen, tuple) else (chosen,)))


def lie(block: str) -> Callable[[], object]:
    """A leader whose seal is off in one block, or, of α and c, consistently."""
    if block in ("alpha", "weights"):
        return partial(claims.test_a_leader_whose_numbers_follow_from_another_alpha_or_c_ends_the_run, block)
    return every(test_liar.test_a_leader_whose_numbers_are_off_by_a_millionth_is_found_out, block=[block])


def off(*conditions: tuple[object, str, str]) -> tuple[Edit, ...]:
    """Conditions that never hold."""
    return tuple(Edit(owner, name, old, "False") for owner, name, old in conditions)


def gone(owner: object, name: str, *pieces: str) -> tuple[Edit, ...]:
    """Operands of `and` and `or`, arguments and elements that are not there."""
    return tuple(Edit(owner, name, old, None) for old in pieces)


COMPANIES = every(test_account.test_a_day_has_one_company_and_within_a_block_they_only_shrink)
DAYS = every(test_account.test_what_a_day_was_given_to_decides_what_it_can_be_given_to)
QUESTIONS = test_account.test_a_question_is_answered_four_times_and_a_new_one_where_there_is_room
NOISE = test_collect.test_an_offer_that_nobody_made_opens_as_noise_and_names_nobody
OUTSIDE = every(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules)
AFTER_A_FIT = every(claims.test_rows_under_a_fit_continue_it_for_92_days)
EQUAL_ONLY, HALF_A_DAY = (
    claims.test_by_default_an_agent_gives_equal_weights_only,
    claims.test_an_agent_is_in_on_days_with_half_of_their_rows,
)
TEN = every(test_account.test_a_company_has_ten_owners_and_two_thirds_of_the_roster)
TOTALS = every(test_account.test_there_is_one_total_for_three_owners_and_never_more_than_five)
LADDERS = claims.test_a_ladder_of_ridges_goes_up_to_the_first_without_a_negative_weight
LOST = test_store.test_an_agent_whose_readings_changed_refuses_to_go_on_and_answers_later_as_it_did_before
DEGREES = test_graph.test_the_default_degree_is_complete_to_200_and_logarithmic_above
WIRE = test_vectors.test_a_run_on_the_wire_is_what_the_second_implementation_makes_of_it
ONE_LINE = every(test_kept.test_words_of_another_party_are_shown_as_one_printable_line)
IN_RANGE, AGREED = "in_range", "check_words(words, keys).tobytes() == checks.tobytes()"
VERIFIED = f"{IN_RANGE} and {AGREED}"
ONE_COMPANY = 'any(self._company(day) not in (b"", hashed) for day in wanted.tolist())'
SHRINK = "(own.max() > other and not members <= theirs)"
GROW = "(own.min() < other and not theirs <= members)"
NEEDED = "max(least, -(-part * roster.owners() // whole))"
HALF = "((own - plan.start) % step == 0).sum() >= needed"
BOOKED = "ask.kind is not None"
ASKED_AGAIN = every(claims.test_what_was_true_at_the_announcement_is_asked_again_before_a_run_begins)
FIRST_LOOK = test_collect.test_a_day_of_which_nothing_can_be_told_yet_is_not_judged

MUTANTS = (
    # Sums that only agents can open
    Mutant("sum", "a total is checked", (Edit(ring, "verify_words", VERIFIED, IN_RANGE),),
           partial(claims.test_an_offset_on_one_total_ends_the_run, 0)),
    Mutant("sum", "words stay within ±2^48", (Edit(ring, "verify_words", VERIFIED, AGREED),),
           partial(test_ring.test_a_total_out_of_range_is_refused_although_its_check_words_agree, 2**63)),
    Mutant("sum", "everybody is counted in it", off((Layout, "decode", "int(total[-1]) != agents")),
           partial(with_patch, test_bad_input.test_a_count_that_is_not_the_companys_ends_the_run, "blind")),
    Mutant("sum", "totals are uniform to the aggregator",
           (Edit(Veil, "_authenticated", "words += self._veil", "pass"),
            Edit(Veil, "_opened", "total -= self._veil", "pass")), claims.test_a_total_shows_the_aggregator_nothing),
    Mutant("sum", "what leaves an agent is masked", (Edit(Veil, "wrap", "self._session.mask(words, nonce)", "pass"),),
           no_key_and_no_reading_is_on_the_wire),
    Mutant("sum", "the context is chained over every total as received",
           (Edit(veil, "next_context", 'digest("blind context", context, total)', 'digest("blind context", context)'),),
           claims.test_the_context_hashes_every_total_as_received),
    Mutant("sum", "totals come in order", off((BlindPart, "receive", "message.step != self.step")),
           of_an_agent("running/open")),
    Mutant("sum", "a nonce masks one vector", off((prg._Used, "spend", "nonce in self._nonces")),
           a_nonce_is_accepted_once),
    Mutant("sum", "a reading out of bound is refused before it is cast",
           off((ring, "quantise", "not within.all()")),
           test_ring.test_a_refusal_names_the_place_and_hides_the_value),
    Mutant("sum", "totals have 16 fractional bits", (Constant(layouts, "TOTAL_BITS", 32),),
           partial(claims.test_totals_have_sixteen_fractional_bits_and_no_more, 10)),
    Mutant("sum", "what leaves is dithered", (Edit(AgentContext, "sendable", "rules.dither", "0.0"),),
           claims.test_what_leaves_is_dithered),
    Mutant("sum", "a stamp always gets the same dither",
           (Edit(readings, "dithered", 'words_at(derive(secret, "dither"), readings.time)',
                 'words_at(derive(secret, "dither"), np.arange(len(readings.time)))'),),
           claims.test_a_sensor_that_never_moves_is_dithered_and_a_declared_step_must_be_positive),
    Mutant("sum", "words computed from readings saturate",
           (Edit(direction, "step_values", "float(saturated(raw / scale, bound))", "raw / scale"),),
           claims.test_words_computed_from_readings_saturate),
    Mutant("sum", "squares of residuals saturate",
           (Edit(direction, "_squares", "saturated(value * value, SQUARE_SUM / agents)", "value * value"),),
           claims.test_words_computed_from_readings_saturate),
    Mutant("sum", "no part of a total is above 2/√K",
           (Edit(layouts, "part_bound", "min(clip / math.sqrt(agents), MOST_PART)", "4.0"),),
           claims.test_words_computed_from_readings_saturate),
    Mutant("sum", "a total is no more than its agents can add up to",
           off((Layout, "decode", "not (np.abs(numbers) <= agents * self._most).all()")),
           claims.test_a_total_is_no_more_than_its_agents_can_add_up_to),
    Mutant("sum", "a budget that check words can stand", (Constant(plan, "BLIND_BUDGET", 56),),
           partial(claims.test_an_offset_on_one_total_ends_the_run, 0)),
    Mutant("sum", "a nonce follows from the place of its sum", gone(sums, "sum_nonce", "context"),
           vector("nonce of a sum")),
    Mutant("sum", "a nonce follows from the name and shape of its sum",
           gone(sums, "sum_nonce", "phase", "layout.hash"), vector("nonce of a sum")),
    Mutant("sum", "fixed point and bounds are part of the shape",
           (Edit(Layout, "__init__", "(b.name, b.size, b.bits, float(b.bound).hex())", "(b.name, b.size)"),),
           vector("layout")),
    Mutant("sum", "the veil is of one run and company",
           (Edit(Veil, "__init__", 'derive(group, "veil and check keys", run.id, run.company_hash)',
                 'derive(group, "veil and check keys", run.id)'),), claims.test_the_veil_is_of_one_run_and_company),
    Mutant("sum", "everybody masks with everybody up to 200", (Constant(graph, "COMPLETE_UP_TO", 100),), DEGREES),
    Mutant("sum", "a third of the owners can have most of the agents",
           (Edit(roster, "could_collude", "True", "False"),),
           test_account.test_a_third_of_the_owners_can_have_most_of_the_agents),
    Mutant("sum", "grinding nonces does not cut the graph", (Edit(graph, "regular_degree", "SIGMA", "40"),), DEGREES),
    Mutant("sum", "what is no number is zero", (Edit(layouts, "saturated", "value == value", "True"),),
           claims.test_words_computed_from_readings_saturate),
    # Companies and days
    Mutant("company", "a day has one", off((Account, "refuses_company", ONE_COMPANY)),
           COMPANIES),
    Mutant("company", "it only shrinks within a block, later days",
           (Edit(Account, "refuses_company", SHRINK, "False"),), COMPANIES),
    Mutant("company", "it only shrinks within a block, earlier days",
           (Edit(Account, "refuses_company", GROW, "False"),), COMPANIES),
    Mutant("company", "a block has 28 days", (Constant(account, "BLOCK", 14),),
           COMPANIES),
    Mutant("company", "checked when it is booked",
           off((Account, "settle", "(reason := self.refuses_company(days, company)) is not None")),
           claims.test_checking_and_booking_a_company_are_one_step),
    Mutant("company", "ten owners", (Edit(company, "owners_needed", NEEDED, "-(-part * roster.owners() // whole)"),),
           every(test_account.test_a_company_has_ten_owners_and_two_thirds_of_the_roster)),
    Mutant("company", "two thirds of the owners enrolled",
           (Edit(company, "owners_needed", NEEDED, "least"),),
           every(test_account.test_a_company_has_ten_owners_and_two_thirds_of_the_roster)),
    Mutant("company", "an owner's agents count once",
           (Edit(roster, "owners_of", "{member.owner for member in members}", "members"),),
           every(test_account.test_a_company_has_ten_owners_and_two_thirds_of_the_roster)),
    Mutant("company", "six hours beside a change are not given", (Constant(account, "HOLE", 3 * 3600),),
           test_account.test_beside_a_change_of_company_six_hours_are_not_given),
    Mutant("company", "six hours before a change are not given either",
           off((Account, "beside_a_change", "self._company(each + 1) not in (b'', hashed)")),
           test_account.test_beside_a_change_of_company_six_hours_are_not_given),
    Mutant("company", "rows beside a change stay at home",
           (Edit(AgentContext, "sendable", "~account.beside_a_change(readings.time, run.company)",
                 "readings.time >= 0"),),
           test_collect.test_at_the_midnight_where_a_home_leaves_six_hours_are_not_given),
    Mutant("company", "everybody is in on all its days",
           off((sessions, "begin_run", "(days & ~flags(given, count)).any()")),
           vector("bad_run_on_a_day_somebody_is_out")),
    Mutant("company", "an agent outside takes no part",
           (Edit(Agent, "_agree", "place_of(self._identity.public, run.members)",
                 "place_of(self._identity.public, run.members) or 0"),),
           every(test_liar.test_an_agent_looks_at_the_company_that_the_aggregator_names)),
    Mutant("company", "large enough for two totals",
           off((Agent, "_agree", "plan.totals_for(run.owners) < 2")),
           claims.test_a_company_too_small_for_two_totals_fits_nothing),
    Mutant("company", "the whole one of a fit for rows under it",
           off((Agent, "_agree", "memory.fits[plan.fit].company != run.company")),
           test_collect.test_rows_under_a_fit_need_its_whole_company),
    Mutant("company", "outsiders are not heard", off((Aggregator, "_run", "sender not in self._place")),
           partial(test_matrix.test_the_aggregator_ignores_whoever_is_not_in_the_company, messages.Masked)),
    Mutant("company", "a key gives no day before it was enrolled",
           (Edit(company, "judge", "account.refuses(plan, day, *totals, fit) if day >= since else TOO_EARLY",
                 "account.refuses(plan, day, *totals, fit)"),),
           test_review.test_a_key_enrolled_later_gives_no_earlier_day),
    Mutant("company", "no company with a later key sums an earlier day",
           off((company, "check_company", "min(run.days) < run.since")),
           claims.test_a_company_with_a_later_key_sums_no_earlier_day),
    Mutant("company", "a new key gives nothing of its first six hours",
           (Edit(AgentContext, "sendable", "far &= readings.time >= run.since * DAY + HOLE", "pass"),),
           claims.test_six_hours_after_the_first_midnight_of_a_new_key_are_not_given),
    Mutant("company", "two thirds, no less", (Constant(company, "OWNERS_SHARE", (1, 2)),),
           every(test_account.test_a_company_has_ten_owners_and_two_thirds_of_the_roster)),
    Mutant("company", "least_agents where the account counts",
           (Edit(rules, "least_owners", "REGISTRY[protocol].opened", "True"),),
           every(test_account.test_a_company_has_ten_owners_and_two_thirds_of_the_roster)),
    Mutant("company", "it is part of the run's id",
           (Edit(sessions, "begin_run", 'digest("run company", roster.hash(), company)',
                 'digest("run company", roster.hash())'),), vector("run of four")),
    Mutant("company", "its roster is part of the run's id",
           (Edit(sessions, "begin_run", 'digest("run company", roster.hash(), company)',
                 'digest("run company", company)'),), vector("run of four")),
    # The account
    Mutant("account", "one weighting a day",
           off((Account, "refuses", "known.weights not in (None, 'opened' if opened else plan.weights)")), DAYS),
    Mutant("account", "one grid a day", off((Account, "refuses", "known.step not in (0, plan.step_seconds)")),
           DAYS),
    Mutant("account", "the weights of one fit a day",
           (Edit(Account, "refuses", 'fit and known.fit not in (b"", fit)', "False"),), DAYS),
    Mutant("account", "in means room for all totals of the plan",
           off((Account, "refuses", "totals > most")), claims.test_in_means_room_for_all_totals_of_the_plan),
    Mutant("account", "no other fit over a day that has one",
           (Edit(Account, "refuses", "None if self.fit_of(day).plan == plan.hash() else SPENT", "None"),), DAYS),
    Mutant("account", "a day is opened to one fit",
           (Edit(Account, "refuses_question", "not self._fitted().isdisjoint(days)", "False"),),
           QUESTIONS),
    Mutant("account", "no readings for a fit that came after it began",
           off((Account, "repeatable", "late.any()")),
           claims.test_readings_that_came_after_a_fit_began_are_not_in_it),
    Mutant("account", "totals a day",
           (Edit(Account, "refuses_question", "known.totals >= totals", "False"),),
           QUESTIONS),
    Mutant("account", "counts of signs a day",
           (Edit(Account, "refuses_question", "known.signs >= MOST_SIGNS", "False"),),
           QUESTIONS),
    Mutant("account", "one model a day", (Edit(Account, "refuses_question", "known.released", "False"),),
           QUESTIONS),
    Mutant("account", "four askings of a question", (Constant(account, "MOST_ASKINGS", 5),),
           QUESTIONS),
    Mutant("account", "the same question again is free",
           (Edit(Account, "refuses_question", "if times:\n    return None", "pass"),),
           QUESTIONS),
    Mutant("account", "the same question counts once", (Edit(Account, "_answered", "if times:\n    return", "pass"),),
           QUESTIONS),
    Mutant("account", "four showings of a row",
           (Edit(CollectPart, "__init__", "(at >= 0) & (account.asked(self.times) < MOST_ASKINGS)", "at >= 0"),),
           test_collect.test_a_row_is_given_four_times_with_the_same_number_and_then_no_more),
    Mutant("account", "120 of 365 days, so many", (Constant(account, "FITTED_DAYS", 121),),
           every(test_account.test_fitted_weights_touch_at_most_120_of_any_365_days)),
    Mutant("account", "120 of 365 days, in so many", (Constant(account, "OF_DAYS", 364),),
           every(test_account.test_fitted_weights_touch_at_most_120_of_any_365_days)),
    Mutant("account", "readings stay as they first left",
           (Edit(AgentContext, "sendable", "account.as_sent(dithered(own, self.secret, dither, quantum), rows)",
                "dithered(own, self.secret, dither, quantum)"),), claims.test_readings_stay_as_they_first_left),
    Mutant("account", "numbers of a fit are booked before they leave", off((BlindPart, "_ask", BOOKED)),
           claims.test_every_answer_is_on_the_account_before_it_leaves),
    Mutant("account", "readings of a fit are kept and their days settled before they leave",
           (Edit(BlindPart, "_settle", 'account.settle(sent, run.company, "fitted", self.plan.step_seconds)',
                "tuple(np.unique(self.kept // 86400).tolist())"),),
           claims.test_every_answer_is_on_the_account_before_it_leaves),
    Mutant("account", "rows are counted before they leave",
           (Edit(CollectPart, "_show", "self.own.memory.account.book", "lambda _: None"),),
           claims.test_every_answer_is_on_the_account_before_it_leaves),
    Mutant("account", "an answer is in the store before it leaves",
           (Edit(Agent, "receive", "self._save", "lambda *_: None"),),
           claims.test_every_answer_is_on_the_account_before_it_leaves),
    Mutant("account", "the same fit again is judged by its questions",
           off((Account, "refuses", "self.fit_of(day).plan == plan.hash()")), DAYS),
    Mutant("account", "three counts of signs", (Constant(plan, "MOST_SIGNS", 4),), QUESTIONS),
    Mutant("account", "rows settle their days before they leave",
           (Edit(CollectPart, "_show", "self.own.memory.account.settle(shown, run.company, run.collect.weights, "
                 "run.collect.step_seconds)", "pass"),), claims.test_every_answer_is_on_the_account_before_it_leaves),
    Mutant("account", "an answer given again is the same or none",
           gone(Agent, "_play", "answer_hash(replies) != entry.answer"),
           claims.test_a_journal_that_gives_another_answer_is_not_gone_on_with),
    Mutant("account", "what a lost run cost stays",
           (Edit(Agent, "_resume", "memory.account.apply(entry.bookings)", "pass"),), LOST),
    Mutant("account", "an agent whose store fails is silent",
           (Edit(Agent, "receive", "state, self.state = self.state, AgentState.HALTED", "state = self.state"),),
           test_store.test_an_agent_whose_store_fails_hands_out_nothing_more),
    Mutant("account", "it is this agent's own", off((Agent, "_resume", "snapshot.identity != self._identity.public")),
           test_store.test_an_agent_refuses_the_state_of_another_and_of_another_schema),
    Mutant("account", "it is of this edition", off((store, "disclose", "schema != SCHEMA")),
           test_store.test_an_agent_refuses_the_state_of_another_and_of_another_schema),
    Mutant("account", "the weight stays although the end was not heard",
           (Edit(BlindPart, "remember", "self.own.memory.consent(self._consented)", "pass"),),
           test_collect.test_the_weight_is_kept_although_the_end_of_the_fit_was_not_heard),
    Mutant("account", "the quantum of the dither is the sensor's",
           (Edit(AgentContext, "sendable", "self.memory.quantum", "1.0"),),
           claims.test_the_quantum_of_the_dither_is_the_sensors),
    Mutant("account", "the quantum of the dither is never finer than before",
           (Edit(quantum, "coarser", "max(quantum, sensor_quantum(temperature))", "sensor_quantum(temperature)"),),
           claims.test_the_quantum_of_the_dither_is_never_finer_than_before),
    Mutant("account", "the quantum of the dither is looked for again",
           (Edit(Agent, "_verdict", "self._see_quantum()", "pass"),),
           claims.test_the_quantum_of_the_dither_is_what_was_found_and_survives_a_restart),
    Mutant("account", "fills say nothing of the sensor",
           (Edit(Agent, "_see_quantum", "self.own.readings.temperature[~self.own.readings.filled]",
                 "self.own.readings.temperature"),),
           claims.test_what_an_agent_filled_in_itself_says_nothing_of_its_sensor),
    # In or out
    Mutant("in or out", "the owner is asked again before a run begins",
           (Edit(Agent, "_agree", "(reason := BY_CHOICE[self._choice]) is not None", "False"),), ASKED_AGAIN),
    Mutant("in or out", "a roster superseded before a run begins is not gone on with",
           (Edit(Agent, "_agree", "self._find_roster(self._announce.roster)", "pass"),), ASKED_AGAIN),
    Mutant("in or out", "half of a day's rows", (Edit(company, "_first_look", HALF, "True"),),
           claims.test_an_agent_is_in_on_days_with_half_of_their_rows),
    Mutant("in or out", "rows up to the last one asked for",
           (Edit(company, "_first_look", "min(last_row(plan), (day + 1) * DAY - 1)", "(day + 1) * DAY - 1"),),
           claims.test_an_agent_is_in_on_days_with_half_of_their_rows),
    Mutant("in or out", "days after the newest reading are not answered",
           gone(company, "_first_look", "time[-1] < max(day * DAY, plan.start)"), FIRST_LOOK),
    Mutant("in or out", "nobody is out for good while readings are late",
           (Edit(company, "_first_look", "0 < late <= LATE", "False"),), FIRST_LOOK),
    Mutant("in or out", "days before the first reading are not judged",
           (Edit(company, "_first_look", "day < time[0] // DAY", "False"),), FIRST_LOOK),
    Mutant("in or out", "nobody is out for good because of another grid than its own",
           (Edit(company, "_first_look", "fine and len(own) * own_step >= needed * step", "False"),), FIRST_LOOK),
    Mutant("in or out", "judged once",
           (Edit(company, "judge", "account.book(Judged(tuple(inside), tuple(outside)))", "pass"),),
           test_collect.test_a_day_is_judged_once_by_half_its_rows_up_to_the_last_one_asked_for),
    Mutant("in or out", "the account is asked every time",
           (Edit(company, "judge", "verdict[i] = refused is None and bool(judged)", "verdict[i] = bool(judged)"),),
           claims.test_whether_the_account_allows_a_day_is_looked_up_every_time),
    Mutant("in or out", "a day with an impossible reading is out",
           (Edit(company, "_first_look", "sound[at].all()", "True"),),
           test_collect.test_a_reading_that_cannot_be_is_found_before_the_run_and_its_day_is_out),
    Mutant("in or out", "reasons are fixed texts",
           (Edit(company, "_first_look", "TOO_FEW", "f'{TOO_FEW}: {len(readings.time)}'"),),
           claims.test_a_reason_tells_nothing_of_readings),
    Mutant("in or out", "readings that cannot be are not summed",
           (Edit(AgentContext, "sendable",
                 "usable(self.readings if len(there) == len(self.readings.time) else self.readings.at(there))",
                 "self.readings.at(there)"),), claims.test_a_reading_that_cannot_be_is_lacking),
    Mutant("in or out", "an owner who paused it is out",
           (Edit(Agent, "_verdict", "BY_CHOICE[self._choice] or self._reason_to_stay_out(plan)",
                 "self._reason_to_stay_out(plan)"),),
           every(test_owner.test_it_is_out_on_all_days_in_fixed_words_and_judges_none)),
    Mutant("in or out", "a choice made during a run waits for its end",
           (Edit(Agent, "_play", "self._owner = lambda choice=entry.choice: choice", "pass"),),
           every(test_owner.test_within_a_run_it_answers_as_before_whatever_was_chosen_since)),
    Mutant("in or out", "own gaps of up to 2 h are filled", (Edit(gaps, "fill", "LONGEST_SECONDS", "10800"),),
           every(test_gaps.test_two_hours_are_the_time_from_reading_to_reading)),
    Mutant("in or out", "a home with an outage stays while it costs less than a tenth",
           (Constant(gaps, "LOST_PARTS", (5, 50)),), test_gaps.test_a_tenth_of_the_rows_is_where_a_home_is_left_out),
    # An agent's own rules
    Mutant("rules", "fitted weights only if the owner allows them",
           (Edit(rules, "_check_fit", 'rules.weights == "fitted"', "True"),),
           claims.test_by_default_an_agent_gives_equal_weights_only),
    Mutant("rules", "rows under a fit only if the owner allows them",
           (Edit(rules, "_check_rows", 'rules.weights == "fitted"', "True"),),
           claims.test_by_default_an_agent_gives_equal_weights_only),
    Mutant("rules", "92 days after a fit",
           (Edit(rules, "_check_rows", "last_row(plan) <= fit.end + rules.days_after_fit * DAY", "True"),),
           case(claims.test_rows_under_a_fit_continue_it_for_92_days, 1)),
    Mutant("rules", "rows after a fit, not of it",
           gone(rules, "_check_rows", "plan.start > fit.end"),
           case(claims.test_rows_under_a_fit_continue_it_for_92_days, 2)),
    Mutant("rules", "rows on the grid of the fit",
           gone(rules, "_check_rows", "plan.step_seconds == fit.step_seconds"),
           case(claims.test_rows_under_a_fit_continue_it_for_92_days, 3)),
    Mutant("rules", "λ within the agent's range", (Edit(rules, "_check_fit", "low <= plan.ridge <= high", "True"),),
           case(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules, 1)),
    Mutant("rules", "M within the agent's range", (Edit(rules, "_check_fit", "plan.order <= rules.order", "True"),),
           case(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules, 2)),
    Mutant("rules", "five training rows per parameter that have their lags",
           (Edit(script, "rows_kept", "len(lagged) + plan.order", "train_rows(len(kept), plan.train)"),),
           every(claims.test_rows_beside_gaps_do_not_count_for_the_model)),
    Mutant("rules", "five training rows per parameter", off((rules, "too_short", "rows < needed")),
           case(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules, 3)),
    Mutant("rules", "five training rows per parameter that everybody has",
           off((BlindPart, "_settle",
                "(reason := too_short(self.own.rules, self.plan, whole, len(self.kept))) is not None")),
           case(claims.test_an_agent_insists_on_the_rows_it_lacks_and_on_enough_of_them, 1)),
    Mutant("rules", "28 days of rows that everybody has",
           (Edit(BlindPart, "_settle", "len(self.kept)", "self.plan.length"),),
           case(claims.test_rows_that_somebody_lacks_are_no_days_of_a_fit, 1)),
    Mutant("rules", "blind alone unless the owner says more",
           (Edit(rules, "_check_fit", "plan.protocol in rules.protocols", "True"),),
           case(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules, 4)),
    Mutant("rules", "no limits laxer than its own", gone(rules, "_check_fit", "plan.totals <= rules.totals"),
           case(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules, 5)),
    Mutant("rules", "the clip is its own", gone(rules, "_check_fit", "plan.clip == rules.clip"),
           every(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules)),
    Mutant("rules", "no tolerance for which the last totals rest on few homes",
           (Edit(rules, "_check_fit", "plan.solver_tolerance >= rules.solver_tolerance", "True"),),
           every(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules)),
    Mutant("rules", "half of the rows for training", (Edit(rules, "_check_fit", "plan.train >= rules.train", "True"),),
           every(claims.test_an_agent_stays_out_of_a_fit_outside_its_rules)),
    Mutant("rules", "the weather of its own copy",
           off((Agent, "_reason_to_stay_out",
                "plan.weather != weather_hash(self.own.weather, plan.start, last_row(plan))")),
           claims.test_an_agent_takes_no_weather_but_its_own),
    Mutant("rules", "a grid from midnight, of 15 min or more",
           off((plan, "check_grid", "step < LEAST_STEP or DAY % step or plan.start % step")),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 0)),
    Mutant("rules", "a season of 24 h", (Edit(plan, "_check_blind", "plan.period * plan.step_seconds == DAY", "True"),),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 5)),
    Mutant("rules", "inputs that the data tell apart",
           off((plan, "check_plan", 'plan.weights == "fitted" and plan.minimum_norm and not offered.minimum_norm')),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 7)),
    Mutant("rules", "no ξ ≥ 0 that shows who left", 
           off((plan, "check_plan", 'plan.weights == "fitted" and plan.nonnegative not in offered.nonnegative')),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 8)),
    Mutant("rules", "no more days than can be answered", (Constant(plan, "MOST_DAYS", 10**9),),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 12)),
    Mutant("rules", "a row it lacks is not given for it", off((BlindPart, "_settle", "(at < 0).any()")),
           case(claims.test_an_agent_insists_on_the_rows_it_lacks_and_on_enough_of_them, 0)),
    Mutant("rules", "a run stops at the limit of totals",
           (Edit(BlindPart, "script", "len(span) < most", "len(span) < 40"),),
           claims.test_a_run_stops_at_the_agents_limit_of_totals),
    *(Mutant("rules", f"{name} where the owner says nothing", (Limit(name, value),), killer)
      for name, value, killer in (
        ("protocols", ("blind", "moments"), OUTSIDE), ("weights", "fitted", EQUAL_ONLY), ("least_agents", 9, TEN),
        ("totals", 6, TOTALS), ("agents_per_total", 2, TOTALS), ("colluders", 0, TOTALS), ("clip", 1.9, OUTSIDE),
        ("dither", 0.0, claims.test_what_leaves_is_dithered), ("ridge", (49.0, 101.0), OUTSIDE),
        ("train", 0.4, OUTSIDE), ("solver_tolerance", 0.001, OUTSIDE), ("order", 5, OUTSIDE),
        ("least_days", 27.9, OUTSIDE),
        ("rows_per_parameter", 4.0, OUTSIDE), ("day_share", 0.4, HALF_A_DAY), ("days_after_fit", 93, AFTER_A_FIT),
    )),
    Mutant("rules", "owners for a total as many as its own",
           gone(rules, "_check_fit", "plan.agents_per_total >= rules.agents_per_total"), OUTSIDE),
    Mutant("rules", "colluders as many as its own",
           gone(rules, "_check_fit", "plan.colluders >= rules.colluders"), OUTSIDE),
    Mutant("rules", "equal weights are collected, not fitted",
           (Edit(rules, "_check_fit", 'plan.weights == "fitted"', "True"),), OUTSIDE),
    Mutant("rules", "no weights of a fit it was not in",
           off((rules, "_check_rows", "fit is None")), AFTER_A_FIT),
    Mutant("rules", "15 min", (Constant(plan, "LEAST_STEP", 600),),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 0)),
    Mutant("rules", "a grid that divides the day", gone(plan, "check_grid", "DAY % step"),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 1)),
    Mutant("rules", "a grid from midnight", gone(plan, "check_grid", "plan.start % step"),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 2)),
    Mutant("rules", "a ridge above zero", (Edit(plan, "_check_blind", "plan.ridge > 0", "True"),),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 6)),
    Mutant("rules", "two totals at least", (Edit(plan, "_check_blind", "plan.totals >= 2", "True"),),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 9)),
    Mutant("rules", "this version of the wire", (Edit(plan, "check_window", "plan.version == VERSION", "True"),),
           case(claims.test_a_plan_has_one_grid_one_season_and_a_ridge, 10)),
    Mutant("rules", "weather of the window and no more",
           (Edit(readings, "weather_hash", "slice(*np.searchsorted(weather.time, [first, last + 1]).tolist())",
                 "slice(None)"),),
           claims.test_weather_before_and_after_the_window_does_not_count),
    Mutant("rules", "a total may have less than the plan's if its own limit is less",
           (Edit(BlindPart, "_book", "self.own.rules.totals_for(self.session.run.owners)", "40"),),
           claims.test_the_agents_own_limit_of_totals_counts_whatever_the_plan_says),
    # The search
    Mutant("search", "the first direction is scaled to the data",
           (Edit(direction, "first_scale", "max(1.0 - span.ridge / agents / nu, SMALLEST_SHARE)", "1.0"),),
           claims.test_the_first_direction_is_scaled_to_the_data),
    Mutant("search", "and to the residuals, where the ridge is small",
           (Edit(direction, "first_scale", "1.0 / (math.sqrt(agents) * nu)", "math.inf"),),
           claims.test_the_first_direction_is_scaled_to_the_data),
    Mutant("search", "it ends where the tolerance is reached",
           gone(BlindPart, "script", "earlier > plan.solver_tolerance"),
           claims.test_the_search_ends_at_the_tolerance),
    Mutant("search", "no home sets the size of a direction", (Constant(direction, "REACH", 1e3),),
           test_directions.test_a_home_that_stands_out_does_not_set_the_size_of_a_direction),
    Mutant("search", "it ends where QᵀQ is ill-conditioned", (Constant(script, "ILL_CONDITIONED", 1e30),),
           claims.test_a_total_that_adds_nothing_ends_the_search),
    Mutant("search", "a descent ends where it gains nothing any more",
           (Edit(descent, "at_rest", "len(objectives) > 2 and f2 >= objectives[-3]", "False"),),
           test_rounding.test_a_descent_ends_where_an_iteration_gains_nothing),
    Mutant("search", "λ follows from counts, not from the agent's own weight",
           (Edit(BlindPart, "script", 'ladder.better(opened["negative"])',
                 "ladder.better((found.trials @ self.parts[: len(found.descent.weights)] < 0).astype(float))"),),
           partial(test_ridge.test_the_ridge_is_raised_as_in_the_plain_fit, "blind", 3e-4)),
    Mutant("search", "λ only goes up in the final span", gone(RidgeLadder, "better", "not final"), LADDERS),
    Mutant("search", "λ goes up to the first without a negative weight",
           (Edit(RidgeLadder, "better", "count == 0", "count <= 1"),), LADDERS),
    Mutant("search", "λ goes down by one",
           (Edit(RidgeLadder, "better", "self.k + up - down", "self.k + up"),), LADDERS),
    # The release
    *(Mutant("release", rule, (Edit(release, "verify", old, new),), lie(what)) for rule, old, new, what in (
        ("α is worked out again", "(own_alpha, alpha)", None, "alpha"),
        ("c is worked out again", "(own_weights, sealed.weights)", None, "weights"),
        ("gains and season are worked out again", "zip(mine[1:-2], theirs[1:-2], strict=True)", "()", "theta"),
        ("metrics are worked out again", "_same_metrics(mine[-2], theirs[-2])", None, "metrics"),
        ("rss is worked out again", "pairs.append((mine[-1][1:2], theirs[-1][1:2]))", "pass", "rss"),
        ("λ, residual and status follow from opened sums",
         "(mine[-1][[0, 2, 4]] != theirs[-1][[0, 2, 4]]).any()", "False", "residual"),
    )),
    Mutant("release", "iterations are those of the own descent, but for a few", (Constant(release, "MOST_APART", 200),),
           claims.test_a_leader_whose_descent_took_other_iterations_ends_the_run),
    Mutant("release", "each metric by itself",
           (Edit(release, "verify", "_same_metrics(mine[-2], theirs[-2])", "_close(mine[-2], theirs[-2])"),),
           claims.test_a_metric_beyond_all_bounds_covers_no_other),
    Mutant("release", "the state has the digits of one total", (Constant(release, "STATE_QUANTUM", 2.0**-60),),
           partial(with_patch, partial(test_fine_state.test_the_totals_are_not_in_the_last_bits_of_the_state, False))),
    Mutant("release", "iterations and status are possible",
           off((release, "verify", "not (1 <= iterations <= MAX_ITERATIONS and iterations == int(iterations) "
                "and status in range(len(STATUSES)))")),
           partial(with_patch, swapped(test_kept.test_a_release_that_makes_no_sense_ends_the_run), False, math.inf)),
    Mutant("release", "the leader's descent ends where everybody's does",
           gone(release, "verify", "_close(own.alpha, alpha, SAME_END)"),
           claims.test_a_leader_whose_descent_ends_elsewhere_ends_the_run),
    Mutant("release", "numbers to 1e-9", (Edit(release, "_close", "VERIFY", "1e-5"),),
           lie("rss")),
    Mutant("release", "the state rests on three agents",
           (Edit(release, "check_effective", "max(3.0, agents / 4)", "agents / 4"),),
           claims.test_the_state_rests_on_three_agents_and_a_quarter_of_them),
    Mutant("release", "the state rests on a quarter of the agents",
           (Edit(release, "check_effective", "max(3.0, agents / 4)", "3.0"),),
           claims.test_the_state_rests_on_three_agents_and_a_quarter_of_them),
    Mutant("release", "weights add up to one",
           off((release, "check_effective", "not abs(float(span.ones @ weights) - 1.0) < 1e-6")),
           claims.test_the_state_rests_on_three_agents_and_a_quarter_of_them),
    Mutant("release", "what it rests on is looked at before anything is sent",
           (Edit(release, "verify", "check_effective(span, sealed.weights, agents)", "pass"),),
           claims.test_three_agents_of_unequal_weight_release_nothing),
    Mutant("release", "everybody vouches for the words that open",
           off((BlindDesk, "_open",
                "set(self._vouched.values()) != {vouched(self.run.id, self._context, values)}")),
           partial(claims.test_a_leader_that_releases_other_numbers_than_everybody_vouched_for_is_not_taken, 20)),
    Mutant("release", "one that vouches for something else is enough",
           (Edit(BlindDesk, "_open", "set(self._vouched.values()) != {vouched(self.run.id, self._context, values)}",
                 "vouched(self.run.id, self._context, values) not in self._vouched.values()"),),
           partial(test_liar.test_one_agent_that_vouches_for_other_words_is_enough, True)),
    Mutant("release", "everybody vouches under its own signature",
           (Edit(BlindDesk, "_release", "verify", "lambda *_: None"),),
           partial(test_liar.test_one_agent_that_vouches_for_other_words_is_enough, False)),
    Mutant("release", "the hash covers every word", gone(release, "vouched", 'words.astype("<f8").tobytes()'),
           vector("vouched")),
    Mutant("release", "the hash covers the run and all it was shown", gone(release, "vouched", "run", "context"),
           vector("vouched")),
    Mutant("release", "masks and hashes follow from the seal",
           (Edit(BlindPart, "_take_seal", "next_context(self._veil.context, box)", "self._veil.context"),),
           claims.test_masks_and_hashes_of_a_release_follow_from_the_seal),
    Mutant("release", "a seal is of one run and context",
           gone(BlindPart, "_seal_key", "self.session.run.id", "self._veil.context"), vector("unsealed")),
    Mutant("release", "a seal has the size of its numbers",
           off((Sealed, "unpack", "len(data) != cls.size(plan, totals)")), vector("bad_seal_one_word_short")),
    Mutant("release", "a question follows from the rows, the plan and the company",
           gone(BlindPart, "_settle", "company", "self.kept.tobytes()"),
           vector("questions")),
    Mutant("release", "a question follows from every sum opened before it",
           (Edit(BlindPart, "_accept", 'self._hashed("answered", phase, words)', "self.question"),),
           vector("questions")),
    Mutant("release", "a question follows from the seal",
           gone(BlindPart, "_take_seal", "numbers"), vector("unsealed")),
    Mutant("release", "the leader's descent converged where everybody's did",
           gone(release, "verify", "converged == own.converged"),
           claims.test_a_leader_that_denies_that_its_descent_converged_ends_the_run),
    Mutant("release", "c is finite",
           off((Sealed, "unpack", "not (np.isfinite(weights).all() and np.isfinite(previous).all())")),
           vector("bad_seal_with_an_infinite_weight")),
    Mutant("release", "not before the seal", off((BlindDesk, "_release", "not self._seal")),
           claims.test_a_part_of_a_release_before_the_seal_is_ignored),
    Mutant("release", "a seal is no larger than its numbers",
           off((BlindDesk, "_pass_seal", "len(message.box) > Sealed.size(self.run.plan, self._sums) + BOX_BYTES")),
           claims.test_a_seal_larger_than_its_numbers_ends_the_run),
    Mutant("release", "a box of a release is of one run",
           gone(release, "seal_release", "run") + gone(release, "open_release", "run"),
           claims.test_a_box_of_a_release_opens_in_its_own_run_only),
    Mutant("release", "an agent vouches for a purpose and a version",
           (Edit(BlindPart, "_release", 'self.own.identity.sign("vouch", VERSION, hashed)',
                 "self.own.identity.sign(hashed)"),), WIRE),
    # Rows that open to the aggregator
    Mutant("collect", "a row somebody lacks does not open",
           (Edit(CollectPart, "_send",
                "words[:-1][not_given] = self._random.words(layout.words - 1, nonce)[not_given]", "pass"),),
           NOISE),
    Mutant("collect", "who lacks it is not to be seen",
           (Edit(CollectPart, "_send", "self._random.words(layout.words - 1, nonce)[not_given]", "1"),),
           NOISE),
    Mutant("collect", "what leaves an agent is masked",
           (Edit(CollectPart, "_send", "self.session.mask(words, nonce)", "pass"),),
           no_reading_is_on_the_wire_of_rows_collected),
    Mutant("collect", "the context is chained over the offers as received",
           (Edit(CollectPart, "receive", 'digest("collect context", self.context, total.words)', "self.context"),),
           case(test_collect.test_agents_shown_different_offers_share_no_mask, 2)),
    Mutant("collect", "sixteen bits under the weights of a fit",
           (Edit(collect, "show_layout", "63 if equal else TOTAL_BITS", "63"),),
           partial(claims.test_totals_have_sixteen_fractional_bits_and_no_more, 10)),
    Mutant("collect", "everybody is counted in it",
           (Edit(collect, "opened_offer", "layout.decode(total, agents)", "pass"),
            *off((Layout, "decode", "int(total[-1]) != agents"))),
           partial(with_patch, test_bad_input.test_a_count_that_is_not_the_companys_ends_the_run, "collect")),
    Mutant("collect", "the rows asked for and no others",
           off((company, "rows_of", "isinstance(plan, Collect)")),
           test_collect.test_only_the_rows_asked_for_are_given),
    Mutant("collect", "totals come in order", off((CollectPart, "receive", "total.step != self.step")),
           of_an_agent("running/offer", protocol="collect")),
    Mutant("collect", "no row offered ends it", off((CollectPart, "_show", "not everybody.any()")),
           claims.test_rows_that_nobody_offered_end_the_run),
    # Sums of moments and paper
    Mutant("opened", "days of opened sums are on the account",
           (Edit(opened.OpenPart, "_answer",
                 'self.own.memory.account.settle(sent, run.company, "opened", self.plan.step_seconds)', "pass"),),
           partial(test_opened.test_what_others_open_does_not_show_a_home_that_allows_blind_only, "moments", True)),
    Mutant("opened", "consent after everybody's receipt",
           (Edit(opened.OpenPart, "_consent", "self._check_receipts(message.tags)", "pass"),),
           partial(test_opened.test_no_agent_consents_while_a_receipt_is_missing, "moments")),
    Mutant("opened", "receipts for this very question",
           (Edit(opened.OpenPart, "receive",
                 'digest("open context", self.context, wire.encode(ask))', "self.context"),),
           partial(test_opened.test_an_agent_asked_something_else_spoils_the_sum_instead_of_answering, "moments", 3)),
    # Keys and rosters
    Mutant("keys", "answers are signed by their owners",
           (Edit(sessions, "check_ready", "verify", "lambda *_: None"),),
           test_bad_input.test_keys_that_their_owner_did_not_sign_are_ignored),
    Mutant("keys", "days are signed with them",
           (Edit(sessions, "check_ready",
                 'verify(member.identity, ready.signature, "ready", hashed, ready.days, ready.nonce, ready.exchange)',
                 'verify(member.identity, ready.signature, "ready", hashed, ready.nonce, ready.exchange)'),),
           vector("run of four")),
    Mutant("keys", "nobody shows another's key",
           off((sessions, "begin_run", "len(public) != n or len(fresh) != n")),
           test_kept.test_two_agents_with_one_key_end_the_run_at_once),
    Mutant("keys", "an agent's own key is in the run",
           off((sessions.Session, "__init__", "own != exchange.public")),
           test_bad_input.test_an_agent_whose_own_key_is_not_in_the_run_stops),
    Mutant("keys", "the run is its plan, company, days, nonces and keys",
           (Edit(sessions, "begin_run",
                 'digest("run", VERSION, announce.plan.hash(), company_hash, keys.days, keys.nonces, keys.exchange)',
                 'digest("run", VERSION, announce.plan.hash(), company_hash, keys.nonces)'),),
           vector("run of four on other days")),
    Mutant("keys", "a box is for one receiver of one run",
           (Edit(keys, "_box_key", 'pack("seal", purpose, sender, receiver, *associated)', 'pack("seal", purpose)'),),
           test_keys.test_the_two_directions_of_a_pair_share_no_keystream),
    Mutant("keys", "a pair key is bound to run, company and plan",
           (Edit(keys, "_pair_info", 'pack("pair", version, run_id, low, high, roster, config)',
                 'pack("pair", version, low, high)'),),
           partial(test_keys.test_everything_bound_to_a_pair_key_changes_it, {"config": b"\2" * 32})),
    Mutant("roster", "signed by the authority",
           (Edit(roster, "check_roster", "verify", "lambda *_: None"),),
           claims.test_no_roster_is_taken_but_the_authoritys),
    Mutant("roster", "its number never goes down",
           off((Agent, "_see_roster", "roster.serial < self.own.memory.serial")),
           test_liar.test_an_agent_never_takes_an_older_roster),
    Mutant("roster", "a run is for the agent's own",
           off((Agent, "_find_roster", "wanted != newest.hash()")),
           claims.test_an_agent_takes_no_run_of_another_roster),
    Mutant("roster", "the newest there is",
           (Edit(Agent, "_find_roster", "self._renew_roster is not None",
                 "self._renew_roster is not None and wanted != self.roster.hash()"),),
           test_liar.test_an_agent_looks_for_the_newest_roster_before_it_answers),
    Mutant("roster", "of the authority that was pinned", off((roster, "check_roster", "roster.authority != authority")),
           claims.test_a_roster_of_another_authority_is_refused_before_its_signature_counts),
    Mutant("roster", "everybody once", off((roster, "check_distinct", "len(set(values)) != len(values)")),
           claims.test_a_roster_out_of_order_or_with_somebody_twice_is_refused_though_signed),
    Mutant("roster", "in the order of keys",
           off((roster, "check_roster",
                "list(roster.members) != sorted(roster.members, key=lambda member: member.identity)")),
           claims.test_a_roster_out_of_order_or_with_somebody_twice_is_refused_though_signed),
    Mutant("roster", "its number is signed", gone(roster.Roster, "hash", "self.serial"),
           claims.test_no_roster_is_taken_but_the_authoritys),
    # Messages
    Mutant("messages", "the same one gets the same bytes", off((Agent, "receive", "data == seen")),
           partial(test_matrix.test_the_message_that_belongs_next_is_accepted_where_the_table_says,
                   place("running/open"))),
    Mutant("messages", "those of another run are ignored",
           (Edit(Agent, "_run", "message.run != self.part.session.run.id", "False"),), of_an_agent("running/open")),
    Mutant("messages", "the aggregator ignores those of another run",
           (Edit(Aggregator, "_run", "message.run != self.desk.run.id", "False"),), of_the_aggregator("running/sum")),
    Mutant("messages", "two different ones for one step end the run",
           off((desk.RunningTotal, "add", "sender in self._from")), of_the_aggregator("running/consent")),
    Mutant("messages", "one meaning, one encoding", off((messages, "_decode", "_encoder.encode(message) != data")),
           test_bad_input.test_what_is_not_exactly_one_message_is_ignored),
    Mutant("messages", "size before decoding", off((messages, "_decode", "len(data) > limit + OVERHEAD")),
           partial(test_bad_input.test_a_huge_declared_size_allocates_nothing, 0xC6)),
    Mutant("messages", "not in the roster, not heard",
           off((Aggregator, "receive", "not 0 <= sender < len(self.roster)")),
           partial(test_matrix.test_the_aggregator_ignores_whoever_is_not_in_the_roster, desk_places()[0], -1)),
    Mutant("messages", "an agent is in one run at a time",
           (Edit(Agent, "_join", "announce.attempt <= self._announce.attempt", "False"),), of_an_agent("running/open")),
    Mutant("messages", "only the leader seals", gone(BlindDesk, "_pass_seal", "sender != 0", "self._seal"),
           every(test_liar.test_only_the_leader_seals_and_once)),
    Mutant("messages", "a sum has everybody's words",
           (Edit(desk.RunningTotal, "add", "len(self._from) == self.agents", "len(self._from) >= self.agents - 1"),),
           partial(claims.test_an_offset_on_one_total_ends_the_run, 0)),
    Mutant("messages", "a sum is of one name and length",
           off((desk.RunningTotal, "add", "phase != self.phase or len(words) != len(self.total)")),
           claims.test_words_of_another_name_end_a_sum),
    Mutant("messages", "two answers to one announcement end the run",
           off((Aggregator, "_gather", "sender in self.answers")),
           claims.test_two_answers_of_one_agent_to_one_announcement_end_the_run),
    Mutant("messages", "outsiders' refusals are not heard", off((Aggregator, "_refused", "sender not in self._place")),
           partial(test_matrix.test_the_aggregator_ignores_whoever_is_not_in_the_company, messages.Refuse)),
    Mutant("messages", "the end of another run is ignored",
           off((Agent, "_stop", "wire.expect(message, wire.Abort).run not in known")), of_an_agent("running/open")),
    Mutant("messages", "words of others are one printable line",
           (Edit(messages, "one_line", 'c if c.isprintable() else " "', "c"),), ONE_LINE),
    Mutant("messages", "no days beyond number are answered",
           off((agents.Agent, "_verdict", "reason is not None and not 0 < day_count(plan) <= MOST_DAYS")),
           partial(test_kept.test_a_plan_that_no_window_can_have_is_refused_before_anything_is_allocated,
                   "collect", "length", 2**63 - 1, "4194304")),
)  # fmt: skip
