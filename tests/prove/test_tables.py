"""Some of other tables' programs, proved; `python -m tests.prove` has all."""

import itertools

import keras
import numpy as np
import pytest

from benchmarks.exactness.registry import cases
from kerasmgpu.commands.traced_step import trace_step
from kerasmgpu.errors import InputError
from tests.prove import tables

NOT_TRACED = {"run eagerly", "static batch size in python"}
"""They have no step of any number of rows, which is what is proved."""


def chosen(table, every):
    """Each so many programs of a table, and settings in turn."""
    names = [n for n in tables.programs(table) if n not in NOT_TRACED]
    if table == "models":  # Whole networks take long.
        names = [n for n in names if cases("models")[n].group != "applications"]
    return [
        pytest.param(table, name, setting, id=f"{name}, {setting}")
        for name, setting in zip(
            names[::every], itertools.cycle(tables.SETTINGS)
        )
    ]


def check(table, name, setting):
    make = tables.programs(table)[name]
    found = tables.proved(tables.traced(make, setting == "mesh"), setting)
    assert not found.faults


@pytest.mark.parametrize("table, name, setting", chosen("parity", 15))
def test_programs_are_proved(table, name, setting):
    check(table, name, setting)


@pytest.mark.slow
@pytest.mark.parametrize(
    "table, name, setting", [*chosen("parity", 4)[1::2], *chosen("models", 9)]
)
def test_more_programs_are_proved(table, name, setting):
    check(table, name, setting)


def test_inputs_for_batches_of_one_size_say_how_many_rows_a_step_has():
    def make():
        model = keras.Sequential(
            [keras.Input(batch_shape=(8, 3)), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse")
        return model, (np.ones((16, 3)), np.ones((16, 1)))

    step = tables.traced(make)
    assert step.rows == 8
    assert not tables.proved(step, "weights").faults
    with pytest.raises(InputError, match="made for batches of 8 rows. .*16"):
        trace_step(*make(), 16)
