"""Random programs do on a mesh, in random layouts, what one device does."""

import math
import random
from unittest import mock

import hypothesis
import keras
import pytest

import kerasmgpu
from tests.devices import device_names
from tests.partitioner import checking, search
from tests.strategies.sharded import RandomAxes

NUM_PROGRAMS = 12
"""Per mesh, with variables; most of the time is tracing."""


def strategy_of(shape, random_axes):
    """The strategy of a mesh, whose variables are divided along random axes."""
    count = math.prod(shape)
    names = ("batch", "model", "third")[: len(shape)]
    devices = [name.lower() for name in device_names(count)]
    mesh = keras.distribution.DeviceMesh(shape, names, devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["any"] = (names[shape[0] == 1],)
    strategy = kerasmgpu.strategy(
        distribution=keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
    )
    strategy.extended.axis_to_shard = RandomAxes(
        strategy.layouts.axes, lambda variable: random_axes
    )
    return strategy


@pytest.mark.nightly
@pytest.mark.parametrize(
    "shape", [(1, 3), (3, 1), (2, 2)], ids=["1x3", "3x1", "2x2"]
)
def test_random_layouts_do_what_one_device_does(shape):
    random_axes = random.Random(0)
    strategy = strategy_of(shape, random_axes)
    count = 0

    @hypothesis.seed(101)
    @hypothesis.settings(
        search.SETTINGS,
        max_examples=NUM_PROGRAMS,
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(search.programs().filter(lambda one: one.variables))
    def all_do_the_same(program):
        nonlocal count
        try:
            search.check_program(search.on(strategy, program, micro_batches=1))
        except checking.Discarded:
            return
        count += 1

    with (
        mock.patch.object(checking, "_strategy", lambda *_: strategy),
        mock.patch.object(checking, "_replicas", lambda _: strategy.replicas),
    ):
        all_do_the_same()
    assert count > 2
