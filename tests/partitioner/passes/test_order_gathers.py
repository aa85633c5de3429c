"""At most two weights are whole at a time."""

import re

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.passes.order_gathers import bytes_alive
from tests.partitioner.passes.conftest import lines

SIZE = 32
BYTES = SIZE * SIZE * 4


def weights(sharding, number):
    with sharding.scope():
        return [tf.Variable(tf.eye(SIZE)) for _ in range(number)]


def forward(weights):
    def predict(x):
        for weight in weights:
            x = tf.tanh(x @ weight)
        return tf.reduce_sum(x)

    return predict


def training(weights):
    predict = forward(weights)

    def step(x):
        with tf.GradientTape() as tape:
            loss = predict(x) ** 2
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.1 * gradient)

    return step


def lowered(sharding, function, rows=512):
    """The program; so many rows that weights travel and not activations."""
    specification = (tf.TensorSpec([rows, SIZE]),)
    partitioned = sharding.partitioned(function, name="f")
    return partitioned.program(specification).written().lowered


def gathered(text):
    """Names of the variables' values that are gathered, in order."""
    found = lines(text, "= all_gather(")
    return [re.match(r"\s*(\S+)", line).group(1) for line in found]


@pytest.mark.parametrize("make", [forward, training])
def test_two_weights_of_many_are_whole(sharding, make):
    assert bytes_alive(lowered(sharding, make(weights(sharding, 8)))) == (
        2 * BYTES
    )


def test_a_weight_is_gathered_again_for_the_backward_pass(dumped, sharding):
    """But not the last ones, of which the backward pass comes at once, and
    the first one, whose input has no gradient."""
    function = training(weights(sharding, 5))
    text = dumped(function, [512, SIZE], strategy=sharding)
    names = gathered(text["order_gathers"])
    assert len(gathered(text["guard_empty_shares"])) == 5
    assert len(names) == 7
    again = [name for name in names if "again" in name]
    assert len(again) == 2
    assert names[-2:] == again


def test_it_is_gathered_once_where_nothing_lies_between(dumped, sharding):
    text = dumped(
        training(weights(sharding, 2)), [512, SIZE], strategy=sharding
    )
    assert len(gathered(text["order_gathers"])) == 2


def test_a_tied_weight_is_gathered_where_it_is_used(dumped, sharding):
    """At both ends of a network of five layers."""
    tied, *others = weights(sharding, 4)
    function = forward([tied, *others, tied])
    text = dumped(function, [512, SIZE], strategy=sharding)["order_gathers"]
    assert len(gathered(text)) == 5
    assert bytes_alive(lowered(sharding, function)) == 2 * BYTES


def test_a_gather_waits_for_the_weight_before_the_last_one(sharding):
    program = lowered(sharding, forward(weights(sharding, 4)))
    gathers = [one for one in program.instructions if is_gather(one)]
    products = [
        one
        for one in program.instructions
        if getattr(getattr(one, "node", None), "type", "") == "MatMul"
    ]
    assert [one.after for one in gathers] == [
        (),
        (),
        (products[0], gathers[1]),
        (products[1], gathers[2]),
    ]


def is_gather(instruction):
    return getattr(instruction, "name", "") == "all_gather"


def test_gathered_activations_wait_for_nothing(sharding):
    """A batch that must be whole is no weight."""

    def sort(x):
        return [tf.sort(tf.sin(x), axis=0) for _ in range(3)]

    program = lowered(sharding, sort)
    assert all(not getattr(one, "after", ()) for one in program.instructions)
    assert bytes_alive(program) == 0


def test_a_step_with_gathers_runs_without_a_deadlock(sharding):
    function = sharding.partitioned(training(weights(sharding, 8)))
    for _ in range(3):
        function(tf.ones([64, SIZE]))
