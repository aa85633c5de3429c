"""Gradients are reduce-scattered in the backward pass, in groups."""

import importlib

import tensorflow as tf

from tests.partitioner.passes.conftest import lines
from tests.strategies.sharded import mirrored

# The package has a function of this name.
scatter_early = importlib.import_module(
    "kerasmgpu.partitioner.passes.scatter_early"
)


def program(dumped, sharding):
    """`{pass: text}` of a step of two weights; the last one's gradient is
    made first."""
    with sharding.scope():
        weights = [tf.Variable(tf.ones(size)) for size in ([4, 6], [6, 2])]

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(tf.tanh(x @ weights[0]) @ weights[1]))
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(tf.sin(gradient))

    return dumped(step, [None, 4], strategy=sharding)


def positions(text, *words):
    """Numbers of the lines that have all words."""
    return [
        number
        for number, line in enumerate(text.splitlines())
        if all(word in line for word in words)
    ]


def test_a_gradient_is_scattered_and_not_summed(dumped, sharding):
    """Each replica gets its part, of 12 and of 24 elements in all."""
    text = program(dumped, sharding)["lower_reshards"]
    sent = [line.split("  ")[1] for line in lines(text, "reduce_scatter.sum(")]
    assert sorted(sent) == ["12 * 4 bytes", "24 * 4 bytes"]
    assert lines(text, "all_reduce") == []


def test_small_gradients_are_scattered_as_one(dumped, sharding):
    text = program(dumped, sharding)["scatter_early"]
    (line,) = lines(text, "reduce_scatter")
    assert line.endswith("  12 * 4 + 24 * 4 bytes")


def test_groups_sum_what_each_has_scattered(dumped):
    """Behind each reduce-scatter, and of half of the elements."""
    with_groups = mirrored(4, "weights", shard_over=2)
    text = program(dumped, with_groups)["scatter_early"]
    (scatter,) = positions(text, "reduce_scatter")
    (between,) = positions(text, "= all_reduce", "partly summed")
    assert between == scatter + 1
    (line,) = lines(text, "= all_reduce", "partly summed")
    assert line.endswith("  12 * 2 + 24 * 2 bytes")


def test_a_large_gradient_is_scattered_before_the_next_one_is_made(
    dumped, sharding, monkeypatch
):
    monkeypatch.setattr(scatter_early, "LARGE", 40)
    text = program(dumped, sharding)["scatter_early"]
    first, second = positions(text, "reduce_scatter")
    (between,) = positions(text, "= TanhGrad(")
    assert first < between < second


def test_a_part_is_used_after_it_is_scattered(dumped, sharding):
    text = program(dumped, sharding)["scatter_early"]
    (scattered,) = positions(text, "reduce_scatter")
    assert min(positions(text, "= Sin(")[1:]) > scattered


def test_gradients_of_a_loop_are_scattered_behind_it(dumped, sharding):
    """Their sum over the iterations is, once."""
    with sharding.scope():
        weight = tf.Variable(tf.ones([4, 4]))

    def step(x):
        with tf.GradientTape() as tape:
            for _ in tf.range(3):
                x = tf.tanh(x @ weight)
            loss = tf.reduce_sum(x)
        weight.assign_sub(tape.gradient(loss, weight))

    step = tf.function(step)
    text = dumped(step, [None, 4], strategy=sharding)["scatter_early"]
    (line,) = lines(text, "reduce_scatter")
    assert not line.startswith(" ")
    assert line.endswith("  16 * 4 bytes")
