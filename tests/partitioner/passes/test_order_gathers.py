"""At most two weights are whole at a time."""

import re

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.passes.order_gathers import bytes_alive
from tests.partitioner.passes.conftest import lines
from tests.strategies.sharded import mirrored

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


def test_restored_weights_are_whole_with_what_they_are_computed_from(sharding):
    """One in use, and a cast one next to the scaled one that is next."""
    with sharding.scope():
        kernels = [tf.Variable(tf.ones([SIZE, SIZE], tf.int8)) for _ in "1234"]

    def loss(x):
        weights = [tf.cast(kernel, tf.float32) * 0.5 for kernel in kernels]
        return tf.gradients(forward(weights)(x), x)

    program = lowered(sharding, loss)
    restored = [
        one
        for one in program.instructions
        if getattr(one, "restoring", None) is not None
    ]
    assert len(restored) == 6  # Two of them again for the backward pass.
    factor = 4
    assert bytes_alive(program) == 3 * BYTES + factor


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


# Micro-batches ---------------------------------------------------------------


@pytest.fixture(scope="module")
def in_parts():
    """A strategy of two replicas that shards all, in three micro-batches."""
    return mirrored(2, "weights", micro_batches=3)


def centred(weights):
    """A training whose micro-batches meet after each layer."""

    def step(x):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.tanh(x @ weight)
                x -= tf.reduce_mean(x, 0)
            loss = tf.reduce_sum(x**3)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.1 * gradient)

    return step


def training_of_rows(weights):
    """A training whose loss needs no sum before the backward pass."""
    predict = forward(weights)

    def step(x):
        with tf.GradientTape() as tape:
            loss = predict(x)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(0.1 * gradient)

    return step


@pytest.mark.parametrize("make", [forward, training_of_rows])
@pytest.mark.parametrize("rows", [8, 512])
def test_each_micro_batch_gathers_two_weights_at_a_time(in_parts, make, rows):
    """Also of few rows: activations would have to meet to be gathered."""
    program = lowered(in_parts, make(weights(in_parts, 8)), rows)
    assert bytes_alive(program) == 2 * BYTES
    gathers = [one for one in program.instructions if is_gather(one)]
    assert len(gathers) == (8 if make is forward else 13)
    assert all(one.in_turns for one in gathers)
    assert {program.phases[one] for one in gathers} == {0}


def test_gradients_are_scattered_in_each_turn(dumped, in_parts):
    function = training_of_rows(weights(in_parts, 3))
    text = dumped(function, [512, SIZE], strategy=in_parts)["gather_in_turns"]
    (scattered,) = lines(text, "= reduce_scatter.sum(")
    assert scattered.endswith("in each turn, phase 0")
    assert not lines(text, "Accumulate(")


def test_a_weight_is_gathered_in_each_phase_that_uses_it(in_parts):
    program = lowered(in_parts, centred(weights(in_parts, 4)))
    gathers = [one for one in program.instructions if is_gather(one)]
    phases = [program.phases[one] for one in gathers]
    assert len(set(phases)) > 4
    for one in gathers:
        users = [
            other
            for other in program.instructions
            if one.outputs[0] in other.inputs
        ]
        assert {program.phases[u] for u in users} == {program.phases[one]}
    assert bytes_alive(program) == 2 * BYTES


def test_a_weight_that_is_needed_between_turns_is_gathered_once(in_parts):
    """It is whole until the last turn ends, and is counted."""
    first, *others = weights(in_parts, 5)

    def step(x):
        norm = tf.linalg.det(first)
        for weight in (first, *others):
            x = tf.tanh(x @ weight)
        return tf.reduce_sum(x) * norm

    program = lowered(in_parts, step)
    gathers = [one for one in program.instructions if is_gather(one)]
    assert [one.in_turns for one in gathers].count(False) == 1
    assert bytes_alive(program) == 3 * BYTES


def test_a_step_in_turns_runs_without_a_deadlock(in_parts):
    for make in (training, centred):
        function = in_parts.partitioned(make(weights(in_parts, 5)))
        for _ in range(2):
            function(tf.ones([64, SIZE]))
