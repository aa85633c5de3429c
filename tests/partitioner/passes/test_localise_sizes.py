"""Workers gather each other's numbers of rows where a size depends on them."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.mesh import Mesh
from tests.partitioner.passes.conftest import lines
from tests.partitioner.rules import planned

DEVICES = planned.replicas(2).mesh.devices


def gathered(dumped, function, *shapes, workers=2, devices=2, in_shares=None):
    """The lines of all `gather_counts` of workers with so many devices each."""
    replicas = CollectiveReplicas(
        Mesh.on(DEVICES[:devices], DEVICES[0], 0, workers)
    )
    if in_shares is None:
        in_shares = (True,) * len(shapes)
    text = dumped(function, *shapes, replicas=replicas, in_shares=in_shares)
    return lines(text["localise_sizes"], "gather_counts")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_all_rows(dumped, workers):
    found = gathered(
        dumped, lambda x: tf.reduce_mean(x), [None, 2], workers=workers
    )
    expected = (
        "Placeholder:0 counts of rows = "
        "gather_counts(Placeholder:0 S(0))  4 * 4 bytes"
    )
    assert found == [expected] * (workers - 1)


def test_the_first_rows_of_shares(dumped):
    assert gathered(dumped, lambda x: tf.sin(x), [5, 2])


def test_not_for_a_worker_s_own_numbers(dumped):
    """The local shape that a whole row is repeated to has own rows only."""

    def step(x):
        return tf.reduce_sum(x * tf.tile([[1.0, 2.0]], [tf.shape(x)[0], 1]))

    assert not gathered(dumped, step, [None, 2])


def test_not_for_a_batch_that_is_passed_whole(dumped):
    assert not gathered(dumped, tf.sin, [None, 2], in_shares=(False,))


def test_once_in_front_of_everything(dumped):
    """Inputs whose rows are used together have one number of rows."""

    def step(x, y):
        return tf.reduce_mean(x + y), tf.sort(x, 0), tf.shape(y)[0]

    (line,) = gathered(dumped, step, [None, 2], [None, 2])
    assert line.startswith("Placeholder:0 counts of rows")


def test_for_what_is_inside_of_a_loop(dumped):
    def step(x):
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, y - tf.reduce_mean(y)),
            [0, x],
        )[0]

    assert len(gathered(dumped, step, [None, 2])) == 1


@pytest.mark.parametrize("devices", [1, 2])
def test_shares_are_compared_with_a_whole_by_all_rows(dumped, devices):
    """A worker of one device has a single number of its own, too."""

    def step(x, y):
        return tf.reduce_sum(x * y)

    (line,) = gathered(
        dumped,
        step,
        [None, 2],
        [None, 2],
        devices=devices,
        in_shares=(True, False),
    )
    assert "gather_counts(Placeholder:0 S(0))" in line
