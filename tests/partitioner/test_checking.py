"""The comparison of replicas with one device finds differences."""

import pytest
import tensorflow as tf

from tests.partitioner.checking import Difference, Discarded, check
from tests.partitioner.program import Input, Program, Setting

ROWS = Input("normal", 0, (5, 2), "float32")


def _fails_on_replicas(wrong):
    """Returns a step with another result when it is traced again."""
    traces = []

    def step(x):
        traces.append(x)
        return (wrong(x) if len(traces) > 1 else x,)

    return step


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + 1e-3,
        lambda x: x[:-1],
        lambda x: tf.where(x > x[0, 0], float("nan"), x),
        lambda x: tf.cast(x, tf.float64),
    ],
)
def test_differences_are_found(wrong):
    step = _fails_on_replicas(wrong)
    with pytest.raises(Difference):
        check(step, {"x": ROWS}, {}, Setting(2, False), "float32")


def test_rounding_is_none():
    step = _fails_on_replicas(lambda x: x * (1 + 2e-7))
    check(step, {"x": ROWS}, {}, Setting(2, False), "float32")


def test_what_one_device_refuses_is_no_difference():
    def step(x):
        return (tf.reshape(x, [3, -1]),)

    with pytest.raises(Discarded):
        check(step, {"x": ROWS}, {}, Setting(2, False), "float32")


def test_a_script_runs_its_program():
    program = Program(
        {"x": ROWS}, {}, ("y = x * 2",), ("y",), Setting(2, True), "float32"
    )
    ran = {}
    exec(program.script(), ran)
    assert ran["step"](tf.ones([1]))[0].numpy() == 2.0
