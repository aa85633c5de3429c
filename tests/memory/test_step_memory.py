"""Predicted bytes of a step: by hand, and as measured."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.memory import counting
from kerasmgpu.memory.state_bytes import Setting, state_bytes
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.memory.traced_step import trace_step
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE
from tests.memory import allocator, measuring_processes, programs
from tests.verify.programs import masked_tokens

SLOW = ("dense with recompute",)
NIGHTLY = (
    "dense that is computed again",
    "unrolled lstm",
    f"dense{measuring_processes.ON_HOST}",
    "gpt like in float32",
    "clip",
    "vision transformer",
    "wavenet",
)
ROWS = 1 << 14


def traced(strategy, program, rows=ROWS):
    with strategy.scope():
        model, data = program()
        return trace_step(model, data, rows)


def linear(num_layers, jit_compile=False, activation=None, units=64):
    layers = [
        keras.layers.Dense(units, activation, use_bias=False)
        for _ in range(num_layers)
    ]
    model = keras.Sequential([keras.Input((units,)), *layers])
    model.compile("sgd", "mse", jit_compile=jit_compile)
    x = np.zeros((8, units), "float32")
    return model, (x, x)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 8])
def test_layers_are_divided_by_rows(replicas, num_replicas):
    step = traced(replicas(2), functools.partial(linear, 5))
    peak = step_peak(step, Setting(num_replicas))
    rows = -(-ROWS // num_replicas)
    assert peak.batch == 2 * rows * 64 * 4
    # The backward pass reads the inputs of all layers; the first is the batch.
    # At the peak there are the loss's gradient and that of an input, too.
    whole, weights = rows * 64 * 4, 5 * 64 * 64 * 4
    found = peak.activations + peak.workspace
    assert 5 * whole <= found <= 7.1 * whole + weights


def test_workers_are_passed_their_rows_only(replicas):
    step = traced(replicas(2), functools.partial(linear, 5))
    in_one = step_peak(step, Setting(4))
    in_four = step_peak(step, Setting(4, num_workers=4))
    assert in_four.batch == in_one.batch == 2 * ROWS // 4 * 64 * 4


def test_rows_are_divided_by_micro_batches(replicas):
    step = traced(replicas(2), functools.partial(linear, 5))
    whole, parts = (
        step_peak(step, Setting(2, micro_batches=k)) for k in (1, 4)
    )
    assert parts.batch == whole.batch  # The device is passed all its rows.
    # Scalars and updates aren't divided.
    assert parts.activations + parts.workspace < 0.3 * (
        whole.activations + whole.workspace
    )
    assert parts.gradients >= 5 * 64 * 64 * 4 + whole.gradients // 8


def normalised(make):
    """Function that makes dense layers, each with a normalisation behind."""

    def program():
        layers = []
        for _ in range(3):
            layers += [keras.layers.Dense(64), make()]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile("sgd", "mse", jit_compile=False)
        x = np.zeros((8, 64), "float32")
        return model, (x, x)

    return program


def test_micro_batches_keep_what_looks_at_all_rows(replicas):
    def saved(make):
        step = traced(replicas(2), normalised(make))
        whole, parts = (
            step_peak(step, Setting(2, micro_batches=k)) for k in (1, 4)
        )
        return parts.activations / whole.activations

    assert saved(keras.layers.LayerNormalization) < 0.3
    assert saved(keras.layers.BatchNormalization) > 0.9


def test_micro_batches_divide_a_loop_behind_which_rows_are_counted(replicas):
    # Its loss is divided by the mask's sum; its metric isn't.
    step = traced(replicas(2), masked_tokens, rows=4096)
    whole, parts = (
        step_peak(step, Setting(1, micro_batches=k)) for k in (1, 4)
    )
    assert parts.activations < 0.3 * whole.activations


def test_what_each_round_reads_of_a_variable_is_in_memory_once(replicas):
    def recurrent():
        layer = keras.layers.LSTM(128, use_cudnn=False)
        model = keras.Sequential([keras.Input((16, 128)), layer])
        model.compile("sgd", "mse", jit_compile=False)
        return model, (np.zeros((8, 16, 128)), np.zeros((8, 128)))

    peak = step_peak(traced(replicas(2), recurrent, rows=8), Setting())
    kernels = 2 * 128 * 4 * 128 * 4
    # Their gradients, what a round adds to them, and activations of 8 rows.
    assert kernels <= peak.total < 4 * kernels


def test_micro_batches_scatter_their_gradients(replicas):
    step = traced(replicas(2), functools.partial(linear, 5, units=128))
    whole, divided = (
        step_peak(step, Setting(2, shard=s, micro_batches=2))
        for s in ("none", "weights")
    )
    summed = 5 * 128 * 128 * 4
    assert whole.gradients - divided.gradients >= summed // 2


def test_summed_gradients_are_divided(replicas):
    def clipped():
        # No gradient can be used before all are there.
        model, data = linear(12, units=256)
        model.compile(keras.optimizers.SGD(global_clipnorm=1.0), "mse")
        model.jit_compile = False
        return model, data

    step = traced(replicas(2), clipped, rows=8)
    whole, divided = (
        step_peak(step, Setting(4, shard=s)) for s in ("none", "weights")
    )
    assert whole.gradients + whole.workspace > 12 * 256 * 256 * 4
    assert divided.total < 0.8 * whole.total


@pytest.mark.slow
def test_recomputed_activations_are_not_kept(replicas):
    kept, again = (
        traced(replicas(2), make)
        for make in (programs.dense, programs.dense_again)
    )
    assert (
        step_peak(again, Setting()).activations
        < 0.5 * step_peak(kept, Setting()).activations
    )


def test_xla_fuses_elementwise_operations(replicas):
    # Of the error nothing is left but what it is computed from.
    step, fused = (
        traced(replicas(2), functools.partial(linear, 1, compiled, "gelu"))
        for compiled in (False, True)
    )
    assert (
        step_peak(fused, Setting()).total
        < 0.9 * step_peak(step, Setting()).total
    )


class Rounds(keras.layers.Layer):
    """Applies a function to its inputs in rounds that only the step tells."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],))

    def call(self, x):
        outputs, _ = tf.while_loop(
            lambda y, count: count < 63.5,
            lambda y, count: (tf.tanh(y * self.scale), count + 1),
            (x, 0 * tf.reduce_sum(x)),
        )
        return outputs


def test_a_round_keeps_its_result_once(replicas):
    """The next round's variable is the same tensor."""

    def loop():
        inputs = keras.Input((16,))
        model = keras.Model(inputs, Rounds()(inputs))
        model.compile("sgd", "mse", jit_compile=False)
        return model, (np.zeros((8, 16), "float32"),) * 2

    peak = step_peak(traced(replicas(2), loop), Setting())
    (assumed,) = peak.assumed
    assert assumed.startswith("rounds of ") and "while" in assumed
    of_a_round = ROWS * 16 * 4
    assert ASSUMED_SIZE <= peak.activations / of_a_round < ASSUMED_SIZE + 3


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(SLOW, id="slow", marks=pytest.mark.slow),
        pytest.param(NIGHTLY, id="nightly", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.skipif(
    not allocator.has_compiler(), reason="needs Linux and a C compiler"
)
def test_steps_need_what_is_predicted(names):
    records = list(measuring_processes.records(names=names))
    assert [record["name"] for record in records] == list(names)
    for record in records:
        assert "error" not in record, record
        assert record["state"] == record["held"], record
        assert measuring_processes.is_near(record), record


def test_slots_on_the_host_are_counted_there(replicas):
    def program():
        model, data = linear(5, units=256)
        model.compile("adam", "mse", jit_compile=False)
        return model, data

    step = traced(replicas(2), program, rows=8)
    slots = 2 * 5 * 256 * 256 * 4
    for count in (1, 2):
        state, there = (
            state_bytes(
                step.variables,
                Setting(count, shard="optimizer", offload=offload),
            )
            for offload in (None, "optimizer")
        )
        assert state.slots - there.slots == there.host == slots // count
        assert state.host == 0 <= there.slots < 100
        whole, peak = (
            step_peak(step, Setting(count, shard="optimizer", offload=offload))
            for offload in (None, "optimizer")
        )
        assert peak.total <= whole.total
        # With the gradients, and what updates need at once.
        assert slots < peak.host < 2 * slots
        assert step_peak(step, Setting(count, shard="optimizer")).host < 1e5


def test_offload_is_among_the_settings(replicas):
    def program():
        model, data = linear(3, units=128)
        model.compile("adam", "mse", jit_compile=False)
        return model, data

    strategy = replicas(2)
    step = traced(strategy, program, rows=64)
    found = [
        counting.settings(step, Setting(2, shard=shard, offload=offload), [1])[
            0
        ]
        for offload in (None, "optimizer")
        for shard in ("none", "optimizer")
    ]
    assert [row["offload"] for row in found] == [None, None, None, "optimizer"]
    slots = 2 * 3 * 128 * 128 * 4
    assert found[1]["slots"] - found[3]["slots"] == slots // 2
    assert found[1]["total"] - found[3]["total"] >= slots // 2
    assert found[1]["built"] > found[3]["built"]
    assert found[3]["host"] > slots  # Of both replicas.
