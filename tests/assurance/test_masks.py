"""Over every choice of keys in a small ring: what leaves is uniform given the sum, and the veil hides the sum too."""

import numpy as np
import pytest

from atdm.crypto.prg import MaskSet
from atdm.crypto.ring import CHECK_WORDS
from atdm.errors import RunAborted
from atdm.protocol.plan import BLIND_BUDGET
from tests.assurance import masks
from tests.assurance.masks import EVERY, MODULUS, NONCE, PAIRS, identity, key_of, pair_keys


def test_masks_cancel_under_every_choice_of_keys() -> None:
    assert masks.sums_are_right()


def test_masks_of_one_sign_do_not_cancel() -> None:
    def same_sign(agent: int, pairs: object) -> MaskSet:
        return MaskSet((1, key_of(pair)) for pair in PAIRS if agent in pair)

    assert not masks.sums_are_right(same_sign)


def test_masked_words_are_uniform_given_their_sum() -> None:
    assert masks.uniform_given_the_sum()


def test_a_connected_graph_of_masks_is_enough() -> None:
    """Above 200 agents not everybody masks with everybody."""
    assert masks.uniform_given_the_sum(pair_keys(((0, 1), (0, 2))))


def test_a_keystream_that_leaves_out_one_value_is_found() -> None:
    assert not masks.uniform_given_the_sum(pair_keys(values=EVERY[:-1]))


def test_an_agent_without_a_mask_is_found() -> None:
    assert not masks.uniform_given_the_sum(pair_keys(((0, 1),)))


def test_an_aggregator_with_one_agents_keys_sees_the_sum_of_the_others_alone() -> None:
    assert masks.colluder_sees_the_sum_of_the_others()


def test_honest_agents_that_share_no_mask_are_told_apart() -> None:
    """Why the graph must stay connected among the honest: here both mask with the colluder only."""
    assert not masks.colluder_sees_the_sum_of_the_others(pair_keys(((0, 2), (1, 2))))


def test_who_cannot_give_a_row_is_not_to_be_seen() -> None:
    assert masks.not_given_is_not_to_be_told()


def test_a_flag_instead_of_a_random_word_is_found() -> None:
    assert not masks.not_given_is_not_to_be_told(random=(1,))


def test_the_veil_hides_the_total_from_the_aggregator() -> None:
    assert masks.veil_hides_the_total()


def test_without_the_veil_the_total_is_seen() -> None:
    assert not masks.veil_hides_the_total(veiled=False)


def test_two_vectors_under_one_mask_would_show_their_difference_and_are_refused() -> None:
    keys = pair_keys()
    first, second = (masks.masked(inputs, keys) for inputs in ((1, 2, 3), (6, 2, 3)))
    assert set(((second[0] - first[0]) % np.uint64(MODULUS)).tolist()) == {5}
    with masks.listed(keys):
        again = masks.mask_set(0, PAIRS)
        again.apply(np.zeros(4, dtype=np.uint64), NONCE)
        with pytest.raises(RunAborted, match="used before"):
            again.apply(np.zeros(4, dtype=np.uint64), NONCE)


@pytest.mark.parametrize("bits, range_bits", [(8, 6), (10, 7), (12, 9)])
def test_a_total_within_its_range_that_is_off_passes_under_few_keys(bits: int, range_bits: int) -> None:
    """Of 2^bits keys of a check word, an offset with v trailing zero bits passes under 2^v; within the range v is
    small. For the ring of 2^64, four check words and 48 bits that is 2^-64."""
    most = 1 << range_bits
    for offset in range(1, most + 1):
        zeros = (offset & -offset).bit_length() - 1
        assert masks.passing(offset, bits) == masks.passing((1 << bits) - offset, bits) == 1 << zeros
    assert max(masks.passing(offset, bits) for offset in range(1, most + 1)) == most
    assert CHECK_WORDS * (64 - BLIND_BUDGET) == 64


def test_without_the_range_half_of_the_keys_let_an_altered_total_pass() -> None:
    assert masks.passing(1 << 7, 8) == 1 << 7


def test_the_identities_of_this_world_are_distinct() -> None:
    assert len({identity(agent) for agent in range(masks.AGENTS)}) == masks.AGENTS
    assert len({key_of(pair) for pair in PAIRS}) == len(PAIRS)
