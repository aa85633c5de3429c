"""Replica counts: what a flag stands for, and what can't be meant."""

import pytest

from kerasmgpu.commands.replica_counts import checked_counts, counts_of_flag
from kerasmgpu.errors import InputError


def test_a_flags_texts_are_integers_in_order_each_once():
    assert checked_counts(counts_of_flag(["4", " 1", "4", "2"])) == [1, 2, 4]


@pytest.mark.parametrize(
    "texts, received", [(["2", "x"], "'x'"), (["1.5"], "'1.5'"), (["0"], "0")]
)
def test_what_is_no_count_is_named(texts, received):
    with pytest.raises(InputError, match=f"replica_counts={received}"):
        checked_counts(counts_of_flag(texts))


def test_the_least_count_is_the_commands():
    with pytest.raises(InputError, match="at least 2"):
        checked_counts([1, 2], minimum=2)


def test_none_is_no_count():
    with pytest.raises(InputError, match="must name one count at least"):
        checked_counts([])
