"""Every kind of bad input, what is done about it, and the tests that show it.

    python -m tests.reliability.rows      prints the table of docs/reliability.md

test_bad_input.py checks that every test named here exists, and that the page has this table.
"""

from typing import NamedTuple


class Row(NamedTuple):
    what: str
    done: str
    tests: tuple[str, ...]  # file below tests/ :: function


TABLES = "data/test_tables.py::"
BAD = TABLES + "test_bad_input_is_refused_with_file_cause_and_remedy"
HERE = "reliability/test_bad_input.py::"
MATRIX = "reliability/test_matrix.py::"
KEPT, RULES = "reliability/test_kept.py::", "reliability/test_rules.py::"
GAPS = "data/test_gaps.py::"
OPENED, BLIND, STORE = "protocol/test_opened.py::", "protocol/test_blind.py::", "protocol/test_store.py::"
COLLECT, LIAR, ACCOUNT = "protocol/test_collect.py::", "protocol/test_liar.py::", "protocol/test_account.py::"
VANISHING = "protocol/test_vanishing.py::"
DEPLOY, FRAMES, ENROL = "deploy/test_deploy.py::", "transport/test_frames.py::", "deploy/test_enrolment.py::"
NOTICES = "deploy/test_notices.py::"
PERMISSIONS = "deploy/test_permissions.py::"
DESCENT = "kernel/test_descent.py::"
SIMULATION = "reliability/test_simulation.py::test_a_run_ends_with_the_right_numbers_of_its_company_or_without_a_result"
FUZZ = "reliability/test_fuzz.py::test_a_spoiled_input_is_read_or_refused_by_one_of_our_errors"

DATA = (
    Row(
        "no file, empty, header only, binary, other encoding, `;`, decimal comma",
        "refused with the cause; delimiter and decimal mark are declared, never guessed",
        (
            BAD,
            TABLES + "test_files_that_are_not_there_or_of_another_kind",
            TABLES + "test_decimal_comma_not_declared_is_refused",
        ),
    ),
    Row(
        "the same, other names, units, stamps and shapes of tables, given to `atdm import`",
        "read, with an account of every guess; what cannot be settled is refused with an option that settles it",
        (
            "data/test_import.py::test_every_kind_of_file_gives_the_cluster_it_was_written_from",
            "data/test_import.py::test_what_is_refused_names_a_remedy_and_the_remedy_works",
        ),
    ),
    Row("byte order mark, CRLF", "accepted", (TABLES + "test_byte_order_mark_and_crlf_are_accepted",)),
    Row(
        "column missing or twice; further columns",
        "refused; named and ignored",
        (BAD, TABLES + "test_extra_columns_are_named"),
    ),
    Row(
        "NaN, empty, NA",
        "gaps of up to 2 h are filled by the home that has them, other rows dropped for everybody; both counted",
        (
            TABLES + "test_a_missing_reading_is_filled_or_drops_the_stamp_for_all_agents",
            GAPS + "test_filling_is_what_the_rule_says_stamp_by_stamp",
        ),
    ),
    Row(
        "a home with an outage",
        "its rows are lost for all or, where that costs a tenth of them (of K > 10 homes 1/K, at least a fiftieth), "
        "the home is left out; two thirds stay",
        (
            GAPS + "test_among_many_homes_a_home_may_cost_no_more_than_it_is_of_all",
            GAPS + "test_a_tenth_of_the_rows_is_where_a_home_is_left_out",
            GAPS + "test_where_more_than_a_third_is_broken_two_thirds_stay",
        ),
    ),
    Row("infinity, text in a number's place", "refused, naming the row", (BAD,)),
    Row("weather that does not cover every stamp", "refused, naming the first", (BAD,)),
    Row(
        "gap in time",
        "segments; no lag crosses it",
        (TABLES + "test_a_gap_splits_segments_and_drops_nothing", DESCENT + "test_no_lag_crosses_a_gap"),
    ),
    Row(
        "doubled stamps",
        "equal rows dropped and counted, conflicting refused",
        (BAD, TABLES + "test_exact_doubles_are_dropped_and_counted"),
    ),
    Row("time going back", "refused, or sorted when asked", (BAD, TABLES + "test_rows_are_sorted_only_when_asked")),
    Row(
        "irregular step, another step",
        "refused, never resampled",
        (BAD, TABLES + "test_weather_of_another_step_is_refused"),
    ),
    Row(
        "naive stamps, mixed offsets, 23 h and 25 h days",
        "a zone must be declared; stamps without one instant are refused",
        (
            BAD,
            TABLES + "test_local_stamps_without_one_instant_are_refused",
            TABLES + "test_aware_stamps_pass_days_of_23_and_25_hours",
        ),
    ),
    Row(
        "agents on different calendars",
        "rows are agreed in a sum that names nobody",
        (
            COLLECT + "test_an_offer_that_nobody_made_opens_as_noise_and_names_nobody",
            "protocol/test_agreement.py::test_a_window_with_a_hole_gives_the_plain_fit_of_the_rows_that_are_left",
        ),
    ),
    Row("°F, K, W, kWh, kW/m²", "refused with the conversion", (BAD,)),
    Row(
        "85 °C, −40 °C, out of bound",
        "refused, or the agent is out on that day; never clipped",
        (
            BAD,
            COLLECT + "test_a_reading_that_cannot_be_is_found_before_the_run_and_its_day_is_out",
            "reliability/test_secrets.py::test_a_reading_out_of_bound_is_refused_without_its_value",
        ),
    ),
    Row(
        "constant, stuck or identical series, spikes",
        "named, not refused",
        (TABLES + "test_odd_series_are_named_and_not_refused",),
    ),
    Row(
        "too few rows",
        "refused",
        (
            DESCENT + "test_options_out_of_range_are_refused_in_one_line",
            BLIND + "test_a_plan_outside_the_agents_rules_is_refused_with_a_reason",
        ),
    ),
    Row(
        "season that is no multiple of the step",
        "refused",
        ("data/test_clock.py::test_a_season_that_is_no_multiple_of_the_step_is_refused_in_one_line",),
    ),
    Row(
        "inputs that cannot be told apart",
        "named; minimum norm only when asked",
        (DESCENT + "test_inputs_the_data_cannot_tell_apart_are_named_and_solved_only_when_asked",),
    ),
    Row(
        "1 or 2 agents, fewer than the minimum",
        "refused",
        (
            DESCENT + "test_fewer_than_three_agents_are_refused_by_every_protocol",
            VANISHING + "test_a_company_of_less_than_two_thirds_is_not_begun",
            ACCOUNT + "test_a_company_has_ten_owners_and_two_thirds_of_the_roster",
        ),
    ),
    Row("more agents than the encoding holds", "refused", (HERE + "test_too_many_agents_for_the_words_are_refused",)),
    Row(
        "λ negative, NaN, infinite or zero where it is needed; M, tolerance, share out of range",
        "refused",
        (DESCENT + "test_options_out_of_range_are_refused_in_one_line",),
    ),
    Row(
        "no convergence",
        "status says so, exit 1",
        ("test_cli.py::test_a_fit_that_did_not_converge_exits_with_1_and_writes_only_when_asked",),
    ),
    Row(
        "negative weights",
        "counted in a sum, λ raised or reported, never clipped",
        (
            "kernel/test_reference.py::test_the_papers_claim_that_weights_are_never_negative_fails_on_its_own_data",
            BLIND + "test_without_limits_it_raises_the_ridge_as_plain_does_and_equals_it_there",
        ),
    ),
    Row("unstable model", "named", ("model/test_diagnostics.py::test_warnings_name_what_is_wrong",)),
    Row(
        "parquet of other types, damaged, huge or unpacking to something huge",
        "refused by type, size before reading",
        (
            TABLES + "test_bad_parquet_is_refused_by_type",
            TABLES + "test_damaged_parquet_only_ever_gives_a_data_error",
            TABLES + "test_a_small_file_that_unpacks_to_a_huge_one_is_refused",
        ),
    ),
    Row(
        "a refused command",
        "one line, exit code, no output folder",
        ("test_cli.py::test_a_refused_command_says_so_in_one_line_and_leaves_no_folder",),
    ),
)

PROTOCOL = (
    Row(
        "malformed bytes, unknown field or type, trailing bytes, another encoding of the same",
        "ignored, nothing changed",
        (HERE + "test_what_is_not_exactly_one_message_is_ignored", FUZZ),
    ),
    Row("another version", "refused", (HERE + "test_a_plan_of_another_version_is_refused",)),
    Row(
        "wrong shape or length",
        "ignored or the run ends, no total",
        (
            OPENED + "test_words_of_the_wrong_kind_never_become_a_total",
            LIAR + "test_an_aggregator_that_departs_from_its_part_gets_nothing",
        ),
    ),
    Row(
        "huge declared size",
        "refused before anything is allocated",
        (
            HERE + "test_a_huge_declared_size_allocates_nothing",
            KEPT + "test_a_plan_that_no_window_can_have_is_refused_before_anything_is_allocated",
            FRAMES + "test_a_message_above_its_limit_is_dropped_before_it_is_whole",
        ),
    ),
    Row(
        "somebody not in the roster",
        "ignored",
        (
            MATRIX + "test_the_aggregator_ignores_whoever_is_not_in_the_roster",
            PERMISSIONS + "test_an_unknown_nkey_is_refused",
        ),
    ),
    Row(
        "two connections with one identity, impersonation",
        "the server refuses; two different messages end the run",
        (
            PERMISSIONS + "test_an_agent_cannot_publish_as_another",
            OPENED + "test_the_same_message_twice_is_answered_once_and_two_different_ones_end_the_run",
        ),
    ),
    Row(
        "one key twice, low-order key, own key altered",
        "the run ends",
        (
            KEPT + "test_two_agents_with_one_key_end_the_run_at_once",
            HERE + "test_a_low_order_key_ends_the_run",
            HERE + "test_an_agent_whose_own_key_is_not_in_the_run_stops",
        ),
    ),
    Row(
        "message after its step, of an earlier or later step, of another run; replay",
        "ignored",
        (
            MATRIX + "test_an_agent_answers_or_ignores_every_message_in_every_state",
            MATRIX + "test_the_aggregator_takes_or_ignores_every_message_in_every_state",
            STORE + "test_late_and_foreign_messages_do_not_end_the_run_that_is_under_way",
        ),
    ),
    Row(
        "sealed group secret or seal altered, for somebody else or of another run",
        "the agent ends the run",
        (
            HERE + "test_a_box_that_was_altered_or_is_anothers_ends_the_run",
            HERE + "test_a_seal_that_was_altered_ends_the_run",
            "crypto/test_keys.py::test_every_bit_of_a_box_counts",
        ),
    ),
    Row(
        "a leader that seals, releases or shows others other numbers than the sums give",
        "the run ends, no result is taken",
        (
            LIAR + "test_a_leader_whose_numbers_are_off_by_a_millionth_is_found_out",
            LIAR + "test_two_different_seals_end_without_a_release",
            RULES + "test_a_leader_that_releases_other_numbers_than_everybody_vouched_for_is_not_taken",
            KEPT + "test_a_release_that_makes_no_sense_ends_the_run",
        ),
    ),
    Row(
        "a company too small, one that grew, another one for a day; an older roster",
        "refused by everybody who was there",
        (
            LIAR + "test_an_agent_looks_at_the_company_that_the_aggregator_names",
            LIAR + "test_a_company_that_grew_or_another_one_for_a_day_is_refused_by_all_who_were_there",
            LIAR + "test_an_agent_never_takes_an_older_roster",
        ),
    ),
    Row(
        "a day asked for under other weights, on another grid, by another fit; a question for the fifth time",
        "out, with a fixed reason; the same question gets the same answer four times",
        (
            ACCOUNT + "test_what_a_day_was_given_to_decides_what_it_can_be_given_to",
            ACCOUNT + "test_a_question_is_answered_four_times_and_a_new_one_where_there_is_room",
            DEPLOY + "test_a_day_gives_the_same_answer_four_times_and_no_other",
        ),
    ),
    Row(
        "bad signature, unknown authority, other CA",
        "refused before its content counts",
        (
            HERE + "test_keys_that_their_owner_did_not_sign_are_ignored",
            PERMISSIONS + "test_a_server_of_another_ca_is_refused",
            PERMISSIONS + "test_a_roster_signed_by_somebody_else_is_refused",
        ),
    ),
    Row(
        "a published roster or weather that is forged, old, withheld until late, or too large",
        "ignored, and said in the agent's own log; a run's roster does not change",
        (
            NOTICES + "test_a_roster_is_kept_if_the_authority_signed_it_and_its_number_is_higher",
            NOTICES + "test_published_weather_is_checked_against_the_agents_own_and_never_replaced",
            NOTICES + "test_a_roster_that_comes_within_a_run_is_that_of_the_next",
        ),
    ),
    Row(
        "an agent that does not answer, or falls silent later",
        "out before the first sum; after it the run ends: a sum opens with everybody of its company or not at all",
        (VANISHING + "test_an_agent_lost_before_its_answer_is_out_and_one_lost_later_ends_the_run", SIMULATION),
    ),
    Row(
        "request to open: somebody's receipt missing, of another question, a second time",
        "no consent; the second request is ignored, the same one gets the same bytes",
        (
            OPENED + "test_no_agent_consents_while_a_receipt_is_missing",
            OPENED + "test_an_agent_asked_something_else_spoils_the_sum_instead_of_answering",
            HERE + "test_a_second_request_to_open_is_ignored_or_answered_with_the_same_bytes",
        ),
    ),
    Row(
        "agents shown different things",
        "no further total opens",
        (
            LIAR + "test_an_aggregator_that_departs_from_its_part_gets_nothing",
            COLLECT + "test_agents_shown_different_offers_share_no_mask",
            OPENED + "test_an_agent_shown_other_keys_ends_the_run",
        ),
    ),
    Row(
        "rows to collect that somebody lacks; of no fit, off its grid, too long after it",
        "such a row does not open, and nobody is named; out, with the reason",
        (
            COLLECT + "test_a_row_that_somebody_lacks_does_not_open_and_is_given_later",
            COLLECT + "test_an_agent_stays_out_of_what_is_outside_its_rules_and_says_why",
        ),
    ),
    Row(
        "count word that is not the company's",
        "the run ends, no estimate",
        (HERE + "test_a_count_that_is_not_the_companys_ends_the_run",),
    ),
    Row(
        "aggregator stopped in mid-run",
        "the run is over; a new one has another id, and the account stays",
        (STORE + "test_a_new_run_ends_one_of_which_no_end_was_heard_and_its_bookings_stay", SIMULATION),
    ),
    Row(
        "disk full, state damaged, of another agent or of the first edition, not writable",
        "nothing is sent",
        (
            STORE + "test_an_agent_whose_store_fails_hands_out_nothing_more",
            STORE + "test_a_journal_altered_anywhere_is_refused",
            STORE + "test_an_agent_refuses_the_state_of_another_and_of_another_schema",
        ),
    ),
    Row(
        "killed at a write, restarted",
        "one message per context, byte for byte",
        (STORE + "test_a_process_killed_with_sigkill_at_every_write_sends_one_message_per_context",),
    ),
    Row(
        "clock skew",
        "deadlines by monotonic clock; roles have no clock",
        (HERE + "test_no_role_reads_a_clock_and_deadlines_are_monotonic",),
    ),
    Row(
        "silence, slow parts, flood",
        "the others go on without it, or with other days where readings had left; bounded queues",
        (
            DEPLOY + "test_who_falls_silent_before_a_reading_left_is_left_out_and_the_others_go_on",
            DEPLOY + "test_who_falls_silent_after_a_reading_left_costs_a_fit_its_days_and_says_which_would_do",
            DEPLOY + "test_days_of_a_home_that_fell_silent_wait_for_it_while_others_go_on",
            FRAMES + "test_a_flood_of_beginnings_is_forgotten",
        ),
    ),
)

CONFIG = (
    Row("unknown key or option", "refused", (HERE + "test_an_unknown_key_is_refused",)),
    Row(
        "fractional bits, bound and agents that overflow",
        "refused",
        (
            HERE + "test_too_many_agents_for_the_words_are_refused",
            "crypto/test_ring.py::test_fractional_bits_is_the_largest_that_fits",
        ),
    ),
    Row("a minimum below 3 agents, rules out of range", "refused", (HERE + "test_rules_out_of_range_are_refused",)),
    Row("no TLS", "refused for every address", (PERMISSIONS + "test_only_tls_addresses_are_accepted",)),
    Row(
        "test randomness",
        "cannot be reached from a command",
        ("reliability/test_secrets.py::test_commands_draw_from_the_operating_system_and_offer_no_other_source",),
    ),
    Row("key file others may read", "refused", (ENROL + "test_a_key_that_others_may_read_is_refused",)),
    Row(
        "fitted weights where the owner said nothing",
        "equal weights only; out, with the reason",
        (
            RULES + "test_by_default_an_agent_gives_equal_weights_only",
            DEPLOY + "test_an_owner_who_allows_equal_weights_only_is_out_of_a_fitted_run_with_that_reason",
        ),
    ),
)

SECTIONS = {"Data": DATA, "Protocol": PROTOCOL, "Configuration": CONFIG}


def table() -> str:
    """All rows as Markdown."""
    lines = []
    for name, rows in SECTIONS.items():
        lines += [f"### {name}", "", "| input | what is done | shown by |", "|---|---|---|"]
        for row in rows:
            tests = ", ".join(f"`{test.split('::')[0]}`" for test in dict.fromkeys(t.split("::")[0] for t in row.tests))
            lines.append(f"| {row.what} | {row.done} | {tests} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
