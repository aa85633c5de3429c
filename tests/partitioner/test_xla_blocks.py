"""XLA compiles what repeats in a step once: layers, heads, unrolled loops."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering import xla_blocks
from kerasmgpu.partitioner.lowering.xla_first_run import in_turns
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.test_compilation import DEVICES, HOST, REPLICAS

UNITS = 4


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Cuts clusters that are too small for it to pay."""
    monkeypatch.setattr(xla_blocks, "MOST_WHOLE", 0)


def layer(rows, weights):
    mean = tf.reduce_mean(rows, 1, keepdims=True)
    squares = tf.math.squared_difference(rows, mean)
    scale = tf.math.rsqrt(tf.reduce_mean(squares, 1, keepdims=True) + 0.1)
    normal = (rows - mean) * scale
    hidden = tf.nn.gelu(normal @ weights[0] + weights[2][0])
    return rows + tf.tanh(hidden @ weights[1] + weights[2][1])


def layers(rows, all_weights):
    for weights in all_weights:
        rows = layer(rows, weights)
    return rows


def recurrent(rows, all_weights):
    """The steps of an unrolled loop: all have the same weights."""
    for _ in all_weights:
        rows = layer(rows, all_weights[0])
    return rows


def towers(rows, all_weights):
    other = tf.sin(rows * 2.0)
    half = len(all_weights) // 2
    rows = layers(rows, all_weights[:half])
    return rows * layers(other, all_weights[half:])


def heads(rows, all_weights):
    made = [tf.reduce_sum(layer(rows, one), 1) for one in all_weights]
    return tf.stack(made, 1) * rows[:, :1]


def with_another_end(rows, all_weights):
    """Something else comes between the layers, and on both ends."""
    half = len(all_weights) // 2
    rows = layers(tf.cos(rows), all_weights[:half])
    rows = layers(tf.reverse(tf.sin(rows), [1]), all_weights[half:])
    return tf.nn.softmax(rows)


def stateful(function):
    """Returns a step of `function` on some rows: loss and gradients."""

    def step(rows, *flat):
        groups = [flat[n : n + 3] for n in range(0, len(flat), 3)]
        with tf.GradientTape() as tape:
            tape.watch([rows, *flat])
            made = function(rows, groups)
            loss = tf.reduce_mean(made**2)
        return loss, tape.gradient(
            loss, [rows, *flat], unconnected_gradients="zero"
        )

    return step


def arguments(number):
    random = np.random.default_rng(1)
    shapes = [(UNITS, UNITS), (UNITS, UNITS), (2, UNITS)] * number
    given = [(7, UNITS), *shapes]
    return [tf.constant(random.normal(size=shape)) for shape in given]


def partitioned(function, number, **settings):
    made = Partitioned(
        stateful(function), REPLICAS, jit_compile=True, **settings
    )
    given = arguments(number)
    written = made.program(
        tuple(tf.TensorSpec(x.shape, x.dtype) for x in given)
    ).written()
    return made, given, written


def compiled(function, number):
    _, _, written = partitioned(function, number)
    return written.lowered.clusters


ALL = [towers, heads, layers, recurrent, with_another_end]


@pytest.mark.parametrize("function", ALL)
def test_what_repeats_is_compiled_once(function):
    clusters = compiled(function, 32)
    functions = {one.function: len(one.operations) for one in clusters}
    whole = sum(len(one.operations) for one in clusters) / len(DEVICES)
    assert sum(functions.values()) < 0.6 * whole
    twice = {
        one.function: len(one.operations) for one in compiled(function, 64)
    }
    assert sum(twice.values()) < 1.3 * sum(functions.values())


def _calls(clusters, function):
    return sum(one.function == function for one in clusters)


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize("function", ALL)
def test_blocks_compute_what_one_device_computes(function):
    made, given, _ = partitioned(function, 16)
    expected = tf.function(stateful(function), jit_compile=True)(*given)
    for one, many in zip(
        tf.nest.flatten(expected), tf.nest.flatten(made(*given))
    ):
        np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "number, most, are_whole",
    [(2, 0, True), (16, 3500, True), (16, 1000, False)],
)
def test_small_clusters_stay_whole(monkeypatch, number, most, are_whole):
    monkeypatch.setattr(xla_blocks, "MOST_WHOLE", most)
    clusters = compiled(layers, number)
    assert are_whole == (not [one for one in clusters if "part" in one.call])
    largest = max(len(one.operations) for one in clusters)
    assert are_whole == (largest * len(DEVICES) > 1000 or number == 2)


def test_no_block_is_smaller_than_a_call_is_worth():
    clusters = compiled(recurrent, 16)
    repeated = [one for one in clusters if _calls(clusters, one.function) > 3]
    assert min(len(one.operations) for one in repeated) >= xla_blocks.FEWEST


@pytest.mark.parametrize("is_alike", [True, False])
def test_blocks_that_take_other_results_are_not_alike(is_alike):
    """Nodes that compute the same, but each takes another one's result."""
    random = np.random.default_rng(1)
    number, length = 6, xla_blocks.FEWEST
    wires = [random.integers(1, 9, length) for _ in range(number)]
    sources = []
    for block in range(number):
        steps = wires[0 if is_alike else block]
        for place, step in enumerate(steps):
            sources.append(
                (block * length + place - step,) if place >= 8 else ()
            )
    codes = [*range(length)] * number
    made = xla_blocks._cut(xla_blocks._Cluster(codes, sources))
    assert len(made) == (number if is_alike else 1)


def test_a_device_waits_for_the_first_block_of_the_one_before():
    _, _, written = partitioned(layers, 16)
    clusters = written.lowered.clusters
    first = in_turns(written.library[-1], clusters, {}, HOST)
    waits = {
        node.name: [one[1:] for one in node.input if one[:10] == "^compiled/"]
        for node in first.node_def
    }
    functions = {one.call: one.function for one in clusters}
    for number, device in enumerate(DEVICES):
        for cluster in clusters:
            if cluster.device != device:
                continue
            before = [
                one.call
                for one in clusters
                if one.device == DEVICES[number - 1]
                and (one.function, one.level)
                == (cluster.function, cluster.level)
            ]
            expected = before[:1] if number else []
            found = [
                one
                for one in waits[cluster.call]
                if functions[one] == cluster.function
            ]
            assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_layers_in_any_order(seed):
    """Repetitions of repetitions, beside what doesn't repeat."""
    random = np.random.default_rng(seed)
    kinds = [
        layer,
        lambda rows, weights: tf.sin(rows @ weights[0]),
        lambda rows, weights: rows + tf.nn.softmax(rows @ weights[1]) * rows,
        lambda rows, weights: tf.reverse(rows, [1]) * weights[2][:1],
    ]
    unit = random.integers(0, len(kinds), random.integers(1, 6))
    order = np.concatenate(
        [np.tile(unit, 10), random.integers(0, len(kinds), 5), np.tile(unit, 6)]
    )

    def function(rows, all_weights):
        for kind, weights in zip(order, all_weights):
            rows = kinds[kind](rows, weights)
        return rows

    made, given, _ = partitioned(function, len(order))
    expected = tf.function(stateful(function), jit_compile=True)(*given)
    for one, many in zip(
        tf.nest.flatten(expected), tf.nest.flatten(made(*given))
    ):
        np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-9)
