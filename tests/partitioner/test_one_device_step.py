"""A traced step runs again on any device, on variables of its own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.execution import watched
from kerasmgpu.partitioner.runtime.one_device_step import OneDeviceStep
from kerasmgpu.partitioner.runtime.traced_function import library
from tests.devices import device_names

ROWS = np.arange(14, dtype="float32").reshape(7, 2) / 7


@pytest.fixture(scope="module")
def seen(replicas):
    """A step on two replicas, and what it was given and left."""
    keras.utils.set_random_seed(1)
    strategy = replicas(2)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((2,)),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        accumulating = keras.optimizers.Adam(gradient_accumulation_steps=2)
        model.compile(accumulating, "mse", jit_compile=False)
    found = []

    def around(program, written, run, tensors):
        step = OneDeviceStep(program, written)
        with strategy.scope():
            start = step.read()
            outputs = run(tensors)
            found.append((step, [tf.identity(t) for t in tensors], start))
            found.append(step.read())
        return outputs

    with watched(around):
        model.fit(ROWS, ROWS[:, :1], batch_size=7, epochs=1, verbose=0)
    return found


def close(one, many):
    for a, b in zip(one, many):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("device", [0, 5])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_it_leaves_what_replicas_leave(seen, device, micro_batches):
    (step, tensors, start), ours = seen
    name = f"/device:{device_names(8)[device]}"
    made = step.run(name, tensors, start, micro_batches)
    close(ours, made)
    close(made, step.run(name, tensors, start))  # The start is as it was.
    counts = [a for a in ours if a is not None and a.dtype == "int64"]
    assert counts, "The seed and the iterations are among its variables."


def test_no_node_is_bound_to_a_device(seen):
    (step, *_), _ = seen
    functions = library(step._trace._func_graph, is_compiled=False)
    assert len(functions) > 1  # The branches of the accumulation.
    assert not {n.device for f in functions for n in f.node_def if n.device}
    assert library(step._trace._func_graph, True)[-1].attr["_XlaMustCompile"].b


def test_watched_steps_are_called_one_by_one(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=2, jit_compile=False)
    calls = []

    def around(program, written, run, tensors):
        calls.append([len(tensor) for tensor in tensors])
        return run(tensors)

    with watched(around):
        model.fit(ROWS, ROWS[:, :1], batch_size=2, epochs=2, verbose=0)
    assert calls == 2 * [[2, 2], [2, 2], [2, 2], [1, 1]]
    assert int(model.optimizer.iterations) == 8
