"""Which GPUs workers use that see the same ones."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job.shared_gpus import divide


def test_no_gpus():
    assert divide({0: [], 1: []}) == {0: [], 1: []}


def test_workers_with_gpus_of_their_own_keep_them():
    seen = {0: ["a", "b"], 1: ["c", "d"], 2: []}
    assert divide(seen) == seen


def test_workers_of_two_machines_divide_those_of_each():
    one, other = list("abcd"), list("efgh")
    seen = {0: one, 1: one, 2: other, 3: other}
    assert divide(seen) == {
        0: ["a", "b"],
        1: ["c", "d"],
        2: ["e", "f"],
        3: ["g", "h"],
    }


def test_ranks_that_alternate_between_machines():
    seen = {0: list("ab"), 1: list("cd"), 2: list("ab"), 3: list("cd")}
    assert divide(seen) == {0: ["a"], 1: ["c"], 2: ["b"], 3: ["d"]}


def test_other_numbers_for_the_same_gpus():
    """As in containers, or with another CUDA_VISIBLE_DEVICES."""
    assert divide({0: list("ab"), 1: list("ba")}) == {0: ["a"], 1: ["b"]}


def test_what_does_not_divide_evenly_stays_unused():
    assert divide({0: list("abc"), 1: list("abc")}) == {0: ["a"], 1: ["b"]}


def test_more_workers_than_gpus():
    with pytest.raises(InputError, match="Workers 1, 2 see the same") as error:
        divide({0: ["a"], 1: ["b"], 2: ["b"]})
    assert "CUDA_VISIBLE_DEVICES=-1" in str(error.value)


@pytest.mark.parametrize(
    "seen",
    [
        {0: list("ab"), 1: list("bc")},
        {0: list("ab"), 1: list("b")},
        {0: list("a"), 1: list("b"), 2: list("ab")},
    ],
)
def test_gpus_that_overlap(seen):
    with pytest.raises(InputError, match="some of the same GPUs, but not all"):
        divide(seen)
