"""Whatever a decoder or a file reader is given, only our own errors come out, in one line and in bounded time.

`make soak` reads ATDM_FUZZ_INPUTS inputs, a million unless said otherwise. A failure prints what replays it.
"""

import os
import resource

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reliability.fuzz import attempt, fuzz, fuzz_all, targets

INPUTS = int(os.environ.get("ATDM_FUZZ_INPUTS", "1000000"))
MEMORY = 200  # MB that a long run may add at its peak
DECODERS = [target for target in targets() if target.weight >= 10]


def number(target) -> int:
    return 30 * target.weight if target.weight > 1 else 40


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name.replace(" ", "-").replace("/", "-"))
def test_a_spoiled_input_is_read_or_refused_by_one_of_our_errors(target) -> None:
    seen = fuzz(target, 0, number(target))
    assert sum(seen.values()) == number(target)


@pytest.mark.parametrize("target", DECODERS, ids=lambda target: target.name)
def test_every_valid_input_is_read(target) -> None:
    assert {attempt(target, sample) for sample in target.samples} == {"read"}


@pytest.mark.parametrize("target", DECODERS, ids=lambda target: target.name)
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_and_any_splice_of_valid_inputs_are_read_or_refused(target, data) -> None:
    one, other = (data.draw(st.sampled_from(target.samples)) for _ in range(2))
    cut = data.draw(st.integers(0, len(one)))
    attempt(target, data.draw(st.sampled_from([one[:cut] + other[cut:], other[:cut] + one[cut:]])))
    attempt(target, data.draw(st.binary(max_size=200)))


@pytest.mark.soak
def test_a_million_inputs() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = fuzz_all(INPUTS, first=10**7)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    inputs = sum(sum(part.values()) for part in seen.values())
    print(f"{inputs} inputs to {len(seen)} targets, {grown:.0f} MB more at the peak")
    assert grown < MEMORY
