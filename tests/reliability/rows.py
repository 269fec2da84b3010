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
KEPT = "reliability/test_kept.py::"
OPENED, BLIND, STORE = "protocol/test_opened.py::", "protocol/test_blind.py::", "protocol/test_store.py::"
OBSERVE = "protocol/test_observe.py::"
VANISHING, REFITS = "protocol/test_vanishing.py::", "protocol/test_refits.py::"
DEPLOY, FRAMES, ENROL = "transport/test_deploy.py::", "transport/test_frames.py::", "transport/test_enrolment.py::"
PERMISSIONS = "transport/test_permissions.py::"
DESCENT = "kernel/test_descent.py::"
SIMULATION = "reliability/test_simulation.py::test_a_run_ends_with_the_plain_fit_of_its_roster_or_without_a_result"
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
    Row("byte order mark, CRLF", "accepted", (TABLES + "test_byte_order_mark_and_crlf_are_accepted",)),
    Row(
        "column missing or twice; further columns",
        "refused; named and ignored",
        (BAD, TABLES + "test_extra_columns_are_named"),
    ),
    Row(
        "NaN, empty, NA",
        "the row is dropped for everybody and counted",
        (TABLES + "test_a_missing_reading_drops_the_stamp_for_all_agents",),
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
        ("protocol/test_agreement.py::test_rows_some_agent_lacks_are_agreed_without_naming_the_agent",),
    ),
    Row("°F, K, W, kWh, kW/m²", "refused with the conversion", (BAD,)),
    Row(
        "85 °C, −40 °C, out of bound",
        "refused, never clipped",
        (BAD, "reliability/test_secrets.py::test_a_reading_out_of_bound_is_refused_without_its_value"),
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
            BLIND + "test_an_agent_refuses_a_plan_outside_its_own_rules_and_says_why",
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
            VANISHING + "test_without_its_cohort_a_run_below_the_minimum_is_refused",
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
            "protocol/test_agreement.py::test_blind_equals_plain_on_small_clusters",
        ),
    ),
    Row("unstable model", "named", ("kernel/test_diagnostics.py::test_warnings_name_what_is_wrong",)),
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
            BLIND + "test_an_aggregator_that_departs_from_its_part_gets_nothing",
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
            STORE + "test_a_late_copy_of_an_announcement_does_not_end_the_run_that_is_under_way",
        ),
    ),
    Row(
        "sealed group secret altered, for somebody else or of another run",
        "the agent ends the run",
        (
            HERE + "test_a_box_that_was_altered_or_is_anothers_ends_the_run",
            "crypto/test_keys.py::test_every_bit_of_a_box_counts",
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
        "wrong share, fewer than t survivors",
        "no shares here: a sum opens with everybody of its roster or not at all; a lost agent takes its cohort with it",
        (VANISHING + "test_a_lost_agent_takes_its_cohort_with_it", SIMULATION),
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
            BLIND + "test_an_aggregator_that_departs_from_its_part_gets_nothing",
            OPENED + "test_an_agent_shown_another_roster_or_other_keys_ends_the_run",
        ),
    ),
    Row(
        "an observation of rows somebody lacks or that were shown; of no fit, another roster, grid or rate",
        "such a row does not open, and nobody is named; refused with the reason",
        (
            OBSERVE + "test_a_row_that_somebody_lacks_does_not_open_and_is_given_later",
            OBSERVE + "test_an_offer_that_nobody_made_opens_as_noise_and_names_nobody",
            OBSERVE + "test_a_row_is_shown_once_by_observations_and_fits_together",
            OBSERVE + "test_an_agent_refuses_an_observation_outside_its_rules_and_says_why",
        ),
    ),
    Row(
        "count word that is not the roster's",
        "the run ends, no estimate",
        (HERE + "test_a_count_that_is_not_the_rosters_ends_the_run",),
    ),
    Row(
        "aggregator stopped in mid-run",
        "the run is over; a new one has another id, and the account stays",
        (STORE + "test_a_new_run_ends_one_of_which_no_end_was_heard", SIMULATION),
    ),
    Row(
        "disk full, state damaged, of another agent, not writable",
        "nothing is sent",
        (
            STORE + "test_an_agent_whose_store_fails_hands_out_nothing_more",
            STORE + "test_a_journal_altered_anywhere_is_refused",
            STORE + "test_an_agent_refuses_the_state_of_another",
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
        "deadline; bounded queues",
        (
            DEPLOY + "test_a_silent_agent_ends_the_run_by_name_and_the_others_wait_for_the_next",
            FRAMES + "test_a_flood_of_beginnings_is_forgotten",
        ),
    ),
)

CONFIG = (
    Row("unknown key or option", "refused", (HERE + "test_an_unknown_key_is_refused",)),
    Row(
        "threshold out of range",
        "there is none: no secret sharing",
        (VANISHING + "test_a_lost_agent_takes_its_cohort_with_it",),
    ),
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
        "rows used before",
        "never released twice, totals counted up to the cap",
        (
            DEPLOY + "test_two_runs_never_release_a_row_twice",
            REFITS + "test_no_row_is_ever_in_more_totals_than_the_cap",
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
