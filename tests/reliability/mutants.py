"""Every rule taken out in turn: what is rewritten, and the claim of the tests that must then fail.

A mutant is a piece of source that occurs exactly once in a function, and what stands there instead. If the source
changes, the mutant says so instead of surviving unseen.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from atdm.crypto import keys, prg, ring
from atdm.protocol import (
    aggregator,
    blind,
    choice,
    desk,
    exposure,
    messages,
    observe,
    opened,
    plan,
    readings,
    release,
    roster,
    rules,
    session,
    sums,
)
from atdm.protocol.agent import Agent
from atdm.protocol.aggregator import Aggregator
from atdm.protocol.blind import BlindPart, Phase
from atdm.protocol.observe import ObservePart
from tests.clusters import tiny
from tests.crypto import test_keys, test_prg, test_ring
from tests.protocol import test_blind, test_choice, test_liar, test_observe, test_opened, test_vanishing
from tests.protocol.world import World
from tests.reliability import test_bad_input, test_kept, test_matrix, test_rules, test_secrets
from tests.reliability.places import MEMBER, Place, desk_places


@dataclass(frozen=True)
class Edit:
    owner: object  # module or class
    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    rule: str
    edits: tuple[Edit, ...]
    killer: Callable[..., object]
    says: str  # which claim

    @property
    def name(self) -> str:
        return self.rule.split(":")[0]


def apply(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: dict[tuple[object, str], str] = {}
    for edit in mutant.edits:
        source = sources.get((edit.owner, edit.name)) or source_of(edit.owner, edit.name)
        if source.count(edit.old) != 1:
            raise LookupError(f"{mutant.rule}: {edit.old!r} occurs {source.count(edit.old)} times in {edit.name}")
        sources[edit.owner, edit.name] = source.replace(edit.old, edit.new)
    for (owner, name), source in sources.items():
        replace(owner, name, source, monkeypatch)


def source_of(owner: object, name: str) -> str:
    return textwrap.dedent(inspect.getsource(inspect.getattr_static(owner, name)))


def replace(owner: object, name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a rewritten function in place of the true one, wherever that is known."""
    true = inspect.getattr_static(owner, name)
    made: dict[str, object] = {}
    if inspect.isclass(owner):
        source = source.replace("super()", f"super({owner.__name__}, self)")
    exec(compile(source, f"<mutant of {name}>", "exec"), sys.modules[true.__module__].__dict__, made)
    changed = made[name]
    monkeypatch.setattr(owner, name, changed)
    for table in (BlindPart.AFTER, Agent.TRANSITIONS, Aggregator.TRANSITIONS):
        for key in [key for key, value in table.items() if value is true]:
            monkeypatch.setitem(table, key, changed)
    for module in [module for path, module in sys.modules.items() if path.startswith(("atdm.", "tests."))]:
        if getattr(module, name, None) is true:
            monkeypatch.setattr(module, name, changed)


# Killers that are not one test of the suite as it stands


def with_patch(test: Callable[..., object], *args: object) -> None:
    """A test that takes monkeypatch."""
    with pytest.MonkeyPatch.context() as own:
        test(*args, own)


def with_lies(test: Callable[..., object], *args: object) -> None:
    """A test that takes what arranges a lie."""
    with pytest.MonkeyPatch.context() as own:
        test(partial(test_liar.lying, own), *args)


def releases_twice() -> None:
    world = World(tiny(2, agents=5, rows=60), 2)
    for _ in range(2):
        world.run(world.aggregator(world.plan()))


def one_world() -> None:
    world = World(tiny(2, agents=5, rows=60), 2)
    assert world.run(world.aggregator(world.plan())) is not None


def too_few() -> None:
    test_vanishing.test_without_its_cohort_a_run_below_the_minimum_is_refused(tiny(11, agents=19, rows=60, owners=18))


def refuses(number: int) -> None:
    mark = next(m for m in test_blind.test_an_agent_refuses_a_plan_outside_its_own_rules_and_says_why.pytestmark
                if m.name == "parametrize")  # fmt: skip
    test_blind.test_an_agent_refuses_a_plan_outside_its_own_rules_and_says_why(*mark.args[1][number])


def on_the_wire() -> None:
    class Log:
        text = ""

        def at_level(self, _level: int):
            from contextlib import nullcontext

            return nullcontext()

    with pytest.MonkeyPatch.context() as own:
        test_secrets.test_no_key_and_no_reading_is_on_the_wire_or_in_the_log("blind", own, Log())


def bad_cohorts() -> None:
    def split(i: int) -> int:
        return int(i < 4)

    test_vanishing.test_agents_refuse_a_roster_whose_cohorts_would_show_somebody(split, "fewer than 8")


def next_twice() -> None:
    test_matrix.test_the_message_that_belongs_next_is_accepted_where_the_table_says(
        Place("running/load", "blind", MEMBER, 4)
    )


def count_twice() -> None:
    with_patch(test_bad_input.test_a_count_that_is_not_the_rosters_ends_the_run, "blind")


def observed_twice() -> None:
    test_observe.test_an_observation_without_a_new_row_ends_well_and_empty()


def not_observed(number: int) -> None:
    test = test_observe.test_an_agent_refuses_an_observation_outside_its_rules_and_says_why
    test(*next(m for m in test.pytestmark if m.name == "parametrize").args[1][number])


def rate(number: int) -> None:
    test = test_observe.test_the_rate_is_the_agents_own
    test(*next(m for m in test.pytestmark if m.name == "parametrize").args[1][number])


IN_RANGE, AGREED = "in_range", "check_words(words, keys).tobytes() == checks.tobytes()"
VERIFIED = f"{IN_RANGE} and {AGREED}"

MUTANTS = (
    Mutant("1 check words: a total is checked", (Edit(ring, "verify_words", VERIFIED, IN_RANGE),),
           partial(test_blind.test_an_offset_on_one_total_ends_the_run_for_everybody, 3), "an offset ends the run"),
    Mutant("1 range: words stay within ±2^48", (Edit(ring, "verify_words", VERIFIED, AGREED),),
           partial(test_ring.test_a_total_out_of_range_is_refused_although_its_check_words_agree, 2**63),
           "out of range is refused although check words agree"),
    Mutant("1 count: everybody is in the sum",
           (Edit(sums.Layout, "decode", "if int(total[-1]) != agents:", "if False:"),),
           count_twice, "a count that is not the roster's ends the run"),
    Mutant("1 veil: totals are uniform to the aggregator",
           (Edit(BlindPart, "_authenticated", "words += self._veil", "pass"),
            Edit(BlindPart, "_open", "total -= self._veil", "pass")),
           test_rules.test_a_total_shows_the_aggregator_nothing, "a total shows the aggregator nothing"),
    Mutant("1 masks: what leaves an agent is masked",
           (Edit(BlindPart, "_send", "self.session.mask(words, nonce)", "pass"),),
           on_the_wire, "no reading on the wire"),
    Mutant("1 context: chained over every total as received",
           (Edit(BlindPart, "receive", 'digest("blind context", self.context, total.words)',
                 'digest("blind context", self.context)'),),
           test_rules.test_the_context_hashes_every_total_as_received, "the context hashes every total"),
    Mutant("1 written first: an answer is in the store before it leaves",
           (Edit(Agent, "receive", "self._save(state, data,", "(lambda *_: None)(state, data,"),),
           one_world, "nothing leaves before it is written"),
    Mutant("1 once: the same message gets the same bytes",
           (Edit(Agent, "receive", "if data == seen:", "if False:"),), next_twice, "twice the same bytes"),
    Mutant("1 step: totals come in order",
           (Edit(BlindPart, "receive", "if total.step != self.step:", "if False:"),),
           partial(test_matrix.test_an_agent_answers_or_ignores_every_message_in_every_state,
                   Place("running/load", "blind", MEMBER, 4)), "a total of another step is ignored"),
    Mutant("1 run: messages of another run are ignored",
           (Edit(Agent, "_run", "message.run != self.part.session.run.id", "False"),),
           partial(test_matrix.test_an_agent_answers_or_ignores_every_message_in_every_state,
                   Place("running/load", "blind", MEMBER, 4)), "another run is ignored"),
    Mutant("1 run: the aggregator ignores messages of another run",
           (Edit(Aggregator, "_run", "message.run != self.desk.run.id", "False"),),
           lambda: test_matrix.test_the_aggregator_takes_or_ignores_every_message_in_every_state(
               next(desk for desk in desk_places() if desk.name == "running/sum")), "another run is ignored"),
    Mutant("1 once masked: a nonce masks one vector",
           (Edit(prg._Used, "spend", "if nonce in self._nonces:", "if False:"),),
           lambda: test_prg.test_a_nonce_is_accepted_once(prg.Stream(test_prg.KEY).add),
           "a nonce is accepted once"),
    Mutant("2 orthonormal: directions are normalised",
           (Edit(BlindPart, "_propose", "norm = math.sqrt(outside)", "norm = 1.003 * math.sqrt(outside)"),),
           test_rules.test_directions_are_orthonormal, "directions are orthonormal"),
    Mutant("3 few bits: totals have 16",
           (Edit(blind, "basis_layout", "BLIND_BUDGET, most=BASIS_BITS", "BLIND_BUDGET, most=32"),),
           partial(test_rules.test_totals_have_sixteen_fractional_bits_and_no_more, 10), "sixteen and no more"),
    Mutant("3 dither: on every reading that is summed",
           (Edit(BlindPart, "__init__", "own.rules.dither", "0.0"),),
           test_rules.test_what_enters_a_total_is_dithered, "what enters a total is dithered"),
    Mutant("3 dither fixed: a stamp always gets the same",
           (Edit(readings, "dithered", "readings.time) >>", "np.arange(len(readings.time))) >>"),),
           test_blind.test_dither_is_secret_small_and_always_the_same_for_a_time_stamp, "always the same"),
    Mutant("4 totals: no more than the cap on any row",
           (Edit(BlindPart, "_propose", "totals + 1 > rules.totals_cap(self.agents) or", "False or"),),
           test_blind.test_limits_stop_the_solver_with_a_warning_not_an_error, "limits stop the solver"),
    Mutant("4 leverage: nobody's passes the cap",
           (Edit(BlindPart, "_propose", "self.limits = self.candidate**2 > room", "self.limits = False"),),
           test_rules.test_nobodys_leverage_passes_its_cap, "leverage stays below its cap"),
    Mutant("4 own account: nobody takes back another's refusal",
           (Edit(BlindPart, "_insist", "if not agrees:", "if False:"),),
           partial(with_lies, test_liar.test_nobody_takes_back_another_agents_refusal, dict(totals=1), (-1.0, 0.0)),
           "a refusal is not taken back"),
    Mutant("4 own account: a row shown before is not new",
           (Edit(BlindPart, "_insist", "if not agrees:", "if False:"),),
           partial(with_lies, test_liar.test_nobody_says_for_another_agent_that_a_row_is_new), "a row is not new"),
    Mutant("2 orthonormal seen: everybody looks at the row of QᵀQ",
           (Edit(BlindPart, "_after_basis", "if not np.abs(row - np.eye(len(row))[-1]).max() <= ORTHONORMAL:",
                 "if False:"),),
           partial(with_lies, test_liar.test_a_lie_about_lengths_ends_the_run, Phase.BASIS, "gram", -0.9),
           "a lie about lengths ends the run"),
    Mutant("4 stored directions: refused beyond the caps",
           (Edit(exposure.Exposure, "refuses", "np.logical_or.reduce(over & (more > 0), axis=0)",
                 "np.zeros(added.shape[1], dtype=bool)"),),
           test_rules.test_stored_directions_are_refused_beyond_the_caps, "refused beyond the caps"),
    Mutant("4 least agents: refused below", (Edit(rules.Rules, "reason_to_refuse", "if agents < least:", "if False:"),),
           too_few, "a run below the minimum is refused"),
    Mutant("6 charged: before the first word leaves",
           (Edit(BlindPart, "_send_direction", "self.own.exposure.charge(", "(lambda *_a, **_k: None)("),),
           one_world, "a total left before it was charged"),
    Mutant("6 cohorts: of eight owners or more",
           (Edit(roster, "check_cohorts", "if len(owners) > 1 and min(", "if False and min("),),
           bad_cohorts, "small cohorts are refused"),
    Mutant("6 whole cohorts: a roster is a union of them",
           (Edit(Agent, "_reason_to_refuse", "if not self.roster.has_cohorts(announce.cohorts):", "if False:"),),
           test_rules.test_an_agent_takes_no_run_of_another_roster_or_without_it, "cohorts twice are refused"),
    Mutant("6 roster: a run is for the agent's own",
           (Edit(Agent, "_reason_to_refuse", "if announce.roster != self.roster.hash():", "if False:"),),
           test_rules.test_an_agent_takes_no_run_of_another_roster_or_without_it, "another roster is refused"),
    Mutant("7 ridge: within the agent's range",
           (Edit(rules.Rules, "_reason_to_refuse_model", "if not low <= plan.ridge <= high:", "if False:"),),
           partial(refuses, 2), "a plan outside its rules is refused"),
    Mutant("7 order: within the agent's range",
           (Edit(rules.Rules, "_reason_to_refuse_model", "if plan.order > self.order:", "if False:"),),
           partial(refuses, 1), "a plan outside its rules is refused"),
    Mutant("7 season: within the agent's range",
           (Edit(rules.Rules, "_reason_to_refuse_model",
                 "if not self.season_hours[0] <= hours <= self.season_hours[1]:", "if False:"),),
           partial(refuses, 3), "a plan outside its rules is refused"),
    Mutant("7 window: long enough",
           (Edit(rules.Rules, "too_short", "if rows < needed:", "if False:"),),
           partial(refuses, 0), "a plan outside its rules is refused"),
    Mutant("7 kept rows: long enough without those that somebody lacks",
           (Edit(BlindPart, "_after_rows", "if (reason := ", "if False and (reason := "),),
           test_liar.test_too_few_rows_that_everybody_has_are_refused_like_a_window_too_short, "too few rows"),
    Mutant("7 protocols: blind alone",
           (Edit(rules.Rules, "reason_to_refuse", "if plan.protocol not in self.protocols:", "if False:"),),
           partial(test_liar.test_an_agent_takes_part_in_blind_alone_unless_its_owner_says_more, "moments"),
           "takes part in blind alone"),
    Mutant("7 weather: the agent's own copy",
           (Edit(Agent, "_reason_to_refuse", "if announce.plan.weather != self.own.weather.hash():", "if False:"),),
           test_rules.test_an_agent_takes_no_weather_but_its_own, "other weather is refused"),
    Mutant("7 leader: its α is worked out again",
           (Edit(blind, "verify_leader", '("alpha", alpha, found.alpha),', ""),),
           lambda: with_patch(
               test_rules.test_a_leader_whose_numbers_do_not_follow_from_the_totals_ends_the_run, "alpha"),
           "a leader that deviates ends the run"),
    Mutant("7 leader: its weights are worked out again",
           (Edit(blind, "verify_leader", '("weights", weights, found.weights),', ""),
            Edit(blind, "verify_leader", '("multiplier", np.array([f2]), np.array([found.multiplier])),', "")),
           lambda: with_patch(
               test_rules.test_a_leader_whose_numbers_do_not_follow_from_the_totals_ends_the_run, "weights"),
           "a leader that deviates ends the run"),
    Mutant("7 leader: convergence is checked",
           (Edit(blind, "verify_leader", "if found.converged and not", "if False and not"),),
           lambda: with_patch(test_rules.test_a_leader_that_claims_convergence_ends_the_run),
           "a leader that claims convergence ends the run"),
    Mutant("7 candidates: every one within the agent's rules",
           (Edit(rules.Rules, "reason_to_refuse", "in plan.models())", "in (plan.model,))"),),
           partial(test_choice.test_an_agent_refuses_a_plan_with_one_candidate_outside_its_rules,
                   {"ridge": 1e-6}, "ridge 1e-06"), "one candidate outside its rules is refused"),
    Mutant("7 comparison: of bounded work",
           (Edit(plan, "check_candidates", "or fits > MOST_VALIDATIONS", ""),),
           partial(test_choice.test_a_comparison_that_is_none_is_refused,
                   {"candidates": tuple(plan.Candidate(1, 100.0 + i, 4) for i in range(60)), "every": 1, "length": 200},
                   "further apart"), "more validation runs than agents make are refused"),
    Mutant("7 choice: the leader's scores are worked out again",
           (Edit(choice, "verify_choice", "or not (np.abs(expected - errors) <= bound).all()", ""),),
           lambda: with_patch(test_choice.test_a_leader_whose_scores_are_not_those_of_the_totals_ends_the_run,
                              "an error"), "a leader with other scores ends the run"),
    Mutant("7 choice: what can be fitted is worked out again",
           (Edit(choice, "verify_choice", "usable != float(own is not None) or not", "usable and not"),),
           lambda: with_patch(test_choice.test_a_leader_whose_scores_are_not_those_of_the_totals_ends_the_run,
                              "that it cannot be fitted"), "a leader that leaves one out ends the run"),
    Mutant("7 choice: it is the one the scores give",
           (Edit(choice, "verify_choice", "if chosen != number:", "if False:"),),
           lambda: with_patch(test_choice.test_a_leader_that_announces_another_choice_ends_the_run),
           "a leader that announces another choice ends the run"),
    Mutant("7 choice: from training rows only",
           (Edit(choice, "compare", "span.series[: inputs.train]", "span.series"),
            Edit(choice, "compare", ".training_part()", "")),
           lambda: with_patch(test_choice.test_no_comparison_is_given_a_row_of_the_test_part),
           "the comparison is given no test row"),
    Mutant("8 sizes: no message tells the candidate at hand",
           (Edit(BlindPart, "_send_scalars", "self.plan.widest()[0], len(", "self.plan.order, len("),
            Edit(BlindPart, "_announce", "room=self.plan.widest()[0] - self.plan.order", "room=0")),
           test_choice.test_no_size_tells_which_candidate_is_at_hand, "no size tells the candidate"),
    Mutant("8 in effect: the state rests on three agents",
           (Edit(BlindPart, "_release", "if not 0 < size <= 1.0 / least:", "if False:"),),
           test_rules.test_three_agents_of_unequal_weight_release_nothing, "nothing is released"),
    Mutant("8 released once: rows shown before are left out",
           (Edit(BlindPart, "_after_rows", '"released"][values["missing"] == 0] == 0',
                 '"released"][values["missing"] == 0] >= 0'),
            Edit(BlindPart, "_insist", "if not agrees:", "if False:")), releases_twice, "a row was released twice"),
    Mutant("8 sealed: an altered release does not open",
           (Edit(release, "unsealed_release", "raise PeerError(", "_ = ("),),
           partial(test_blind.test_a_release_that_one_message_was_altered_in_does_not_open, 1, 30),
           "an altered release does not open"),
    Mutant("8 booked: what is released is written down first",
           (Edit(BlindPart, "_release", "self.own.exposure.release(self.kept[self.fresh])", "pass"),),
           releases_twice, "consent left before it was booked"),
    Mutant("8 consent: after everybody's receipt (moments, paper)",
           (Edit(opened.OpenPart, "_consent", 'if self.plan.masks == "ring":', "if False:"),),
           partial(test_opened.test_no_agent_consents_while_a_receipt_is_missing, "moments"),
           "no consent while a receipt is missing"),
    Mutant("8 receipts: for this very question (moments, paper)",
           (Edit(opened.OpenPart, "receive", 'digest("open context", self.context, encode(ask))',
                 'digest("open context", self.context)'),),
           partial(test_opened.test_an_agent_asked_something_else_spoils_the_sum_instead_of_answering, "moments", 3),
           "an agent asked something else spoils the sum"),
    Mutant("9 signed keys: by roster identities",
           (Edit(session, "check_ready", "verify(member.identity,", "(lambda *_: None)(member.identity,"),),
           test_bad_input.test_keys_that_their_owner_did_not_sign_are_ignored, "unsigned keys are ignored"),
    Mutant("9 distinct keys: nobody shows another's",
           (Edit(session, "agree", "if len(set(public)) != n or len(set(fresh)) != n:", "if False:"),),
           test_kept.test_two_agents_with_one_key_end_the_run_at_once, "one key twice ends the run"),
    Mutant("9 own key: is in the run", (Edit(session.Session, "__init__", "if own != exchange.public:", "if False:"),),
           test_bad_input.test_an_agent_whose_own_key_is_not_in_the_run_stops, "an altered own key stops the agent"),
    Mutant("9 sealed: for one receiver of one run",
           (Edit(keys, "_box_key", 'pack("seal", purpose, sender, receiver, *associated)', 'pack("seal", purpose)'),),
           test_keys.test_the_two_directions_of_a_pair_share_no_keystream, "the directions share no keystream"),
    Mutant("9 roster: signed by the authority",
           (Edit(roster, "check_roster", "verify(authority,", "(lambda *_: None)(authority,"),),
           test_rules.test_no_roster_is_taken_but_the_authoritys, "a forged roster is refused"),
    Mutant("§6 bound: refused before it is cast", (Edit(ring, "quantise", "if not within.all():", "if False:"),),
           test_ring.test_a_refusal_names_the_place_and_hides_the_value, "out of bound is refused"),
    Mutant("§6 pair key: bound to run, roster and plan",
           (Edit(keys, "_pair_info", "run_id, low, high, roster, config", "low, high"),),
           partial(test_keys.test_everything_bound_to_a_pair_key_changes_it, {"config": b"\2" * 32}),
           "everything bound to a pair key changes it"),
    Mutant("rule: two different messages of one agent end the run",
           (Edit(desk.Pile, "add", "if sender in self._from:", "if False:"),),
           lambda: test_matrix.test_the_aggregator_takes_or_ignores_every_message_in_every_state(
               next(place for place in test_matrix.desk_places() if place.name == "running/consent")),
           "two different messages end the run"),
    Mutant("rule: one meaning, one encoding",
           (Edit(messages, "_decode", "if _encoder.encode(message) != data:", "if False:"),),
           test_bad_input.test_what_is_not_exactly_one_message_is_ignored, "another encoding is ignored"),
    Mutant("rule: size before decoding",
           (Edit(messages, "_decode", "if len(data) > limit + OVERHEAD:", "if False:"),),
           partial(test_bad_input.test_a_huge_declared_size_allocates_nothing, 0xC6), "too large is refused by size"),
    Mutant("rule: not in the roster, not heard",
           (Edit(aggregator.Aggregator, "receive", "if not 0 <= sender < len(self.members):", "if False:"),),
           partial(test_matrix.test_the_aggregator_ignores_whoever_is_not_in_the_roster,
                   test_matrix.desk_places()[0], -1), "somebody else is ignored"),
    Mutant("rule: an agent of another announcement stays in its run",
           (Edit(Agent, "_join", "announce.attempt <= under_way.attempt", "False"),),
           partial(test_matrix.test_an_agent_answers_or_ignores_every_message_in_every_state,
                   Place("running/load", "blind", MEMBER, 4)), "a late announcement is ignored"),
    Mutant("observe once: rows shown before are not given",
           (Edit(ObservePart, "_may_be_shown", "return unseen & within", "return within"),),
           observed_twice, "a row was released twice"),
    Mutant("observe booked: before the first word leaves",
           (Edit(ObservePart, "_show", "self.own.exposure.release(rows)", "pass"),),
           observed_twice, "a row left before it was booked"),
    Mutant("observe charged: an observed row is one more total",
           (Edit(ObservePart, "_show", "self.own.exposure.charge(", "(lambda *_a, **_k: None)("),),
           observed_twice, "a row left before it was charged"),
    Mutant("observe limits: no more totals on a row than the cap",
           (Edit(ObservePart, "_may_be_shown", "return unseen & within", "return unseen"),),
           test_observe.test_a_row_at_an_agents_limit_is_not_given, "a row at the limit is not given"),
    Mutant("observe everybody: a row somebody lacks does not open",
           (Edit(ObservePart, "_send", "words[:-1][not_given] = self._random.words(layout.words - 1, nonce)[not_given]",
                 "pass"),),
           test_observe.test_a_row_that_somebody_lacks_does_not_open_and_is_given_later, "such a row does not open"),
    Mutant("observe nobody named: a row not given is random",
           (Edit(ObservePart, "_send", "self._random.words(layout.words - 1, nonce)[not_given]", "1"),),
           test_observe.test_offers_show_nobody_who_lacks_a_row, "offers show nobody who lacks a row"),
    Mutant("observe masks: what leaves an agent is masked",
           (Edit(ObservePart, "_send", "self.session.mask(words, nonce)", "pass"),),
           test_observe.test_a_part_that_is_missing_leaves_noise, "a missing part leaves noise"),
    Mutant("observe context: chained over the offers as received",
           (Edit(ObservePart, "receive", 'digest("observe context", self.context, total.words)',
                 'digest("observe context", self.context)'),),
           partial(test_observe.test_an_agent_told_otherwise_answers_under_another_context), "another context"),
    Mutant("observe dither: on every reading that is shown",
           (Edit(ObservePart, "__init__", "own.rules.dither", "0.0"),),
           test_observe.test_what_is_observed_is_dithered, "what is observed is dithered"),
    Mutant("observe bits: sixteen, as basis totals",
           (Edit(observe, "show_layout", "most=BASIS_BITS", "most=32"),),
           partial(test_observe.test_the_state_has_sixteen_fractional_bits_and_no_more, 10), "sixteen and no more"),
    Mutant("observe fit: of the same agents",
           (Edit(Agent, "_reason_to_refuse", "and fit.roster == run_roster(announce, members)", ""),),
           test_observe.test_a_roster_other_than_the_fits_is_refused, "another roster is refused"),
    Mutant("observe consent: the weight of a fit that was released",
           (Edit(BlindPart, "remember", "if self.phase is Phase.RELEASE:", "if len(self.announced.weights):"),),
           test_observe.test_a_fit_that_broke_off_before_its_release_is_nothing_to_observe, "no weight of such a fit"),
    Mutant("observe least agents: refused below",
           (Edit(rules.Rules, "reason_not_to_observe", "if agents < self.least_agents:", "if False:"),),
           partial(rate, 5), "a rule of the agent's own"),
    Mutant("observe grid: rows that continue the fit",
           (Edit(rules.Rules, "reason_not_to_observe",
                 "plan.step_seconds != fit.step_seconds or (plan.start - fit.end) % fit.step_seconds", "False"),),
           partial(not_observed, 3), "rows off the grid are refused"),
    Mutant("observe after: rows later than the fit",
           (Edit(rules.Rules, "reason_not_to_observe", "if plan.start <= fit.end:", "if False:"),),
           partial(not_observed, 4), "rows of the fit are refused"),
    Mutant("observe days: for so long after the fit",
           (Edit(rules.Rules, "reason_not_to_observe", "if int(rows[-1]) > fit.end + self.days_after_fit * DAY:",
                 "if False:"),), partial(rate, 3), "a rule of the agent's own"),
    Mutant("observe rate: so many rows of a day",
           (Edit(rules.Rules, "reason_not_to_observe", "if counts.max() > self.rows_per_day:", "if False:"),),
           partial(rate, 0), "a rule of the agent's own"),
)  # fmt: skip

