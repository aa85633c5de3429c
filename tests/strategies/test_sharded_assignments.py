"""Sharded variables are assigned as TensorFlow's mirrored ones, in all contexts.

A table of method, context, `shard` and aggregation: each cell is compared with
`tf.distribute.MirroredStrategy`; what its variables lack, with ours that are not
sharded.
"""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from tests.devices import device_names
from tests.strategies.sharded import mirrored

DEVICES = device_names(3)
START = np.arange(1, 22, dtype="float32").reshape(7, 3)
"""Of seven rows the replicas hold three, two and two."""

SHARDS = ["weights", "optimizer"]
AGGREGATIONS = {one.name: one for one in tf.VariableAggregation}


@functools.cache
def strategy_of(shard):
    if shard == "stock":
        return tf.distribute.MirroredStrategy(
            DEVICES, tf.distribute.ReductionToOneDevice()
        )
    return mirrored(3, shard)


def made(strategy, aggregation="NONE", **settings):
    """A variable like an optimizer's slot, and the scalar next to it."""
    with strategy.scope():
        scalar = tf.Variable(2.0)
        with strategy.extended.colocate_vars_with(scalar):
            variable = tf.Variable(
                START, aggregation=AGGREGATIONS[aggregation], **settings
            )
    return variable, scalar


def dense(number):
    return tf.constant(START[::-1] / 4) * (number + 1)


def rows(number):
    return tf.IndexedSlices(tf.ones([2, 3]) * (number + 2), tf.constant([5, 1]))


METHODS = {
    "assign": lambda v, n: v.assign(dense(n)),
    "assign_add": lambda v, n: v.assign_add(dense(n)),
    "assign_sub": lambda v, n: v.assign_sub(dense(n)),
    "assign an array": lambda v, n: v.assign(START * 3),
    "scatter_add": lambda v, n: v.scatter_add(rows(n)),
    "scatter_sub": lambda v, n: v.scatter_sub(rows(n)),
    "scatter_mul": lambda v, n: v.scatter_mul(sparse_delta=rows(n)),
    "scatter_div": lambda v, n: v.scatter_div(rows(n)),
    "scatter_min": lambda v, n: v.scatter_min(rows(n)),
    "scatter_max": lambda v, n: v.scatter_max(rows(n)),
    "scatter_update": lambda v, n: v.scatter_update(rows(n)),
    "a slice": lambda v, n: v[1:3, 1:].assign(dense(n)[1:3, 1:]),
    "scatter_nd_add": lambda v, n: v.scatter_nd_add([[5, 1]], [n + 2.0]),
    "batch_scatter_update": lambda v, n: v.batch_scatter_update(
        tf.IndexedSlices(tf.ones([7, 1]) * (n + 2), tf.ones([7, 1], "int32"))
    ),
}

OF_OURS = {"a slice", "scatter_nd_add", "batch_scatter_update"}
"""Methods that TensorFlow's mirrored variables lack outside of replicas."""


def replica():
    context = tf.distribute.get_replica_context()
    return tf.cast(context.replica_id_in_sync_group, tf.float32), context


def in_replicas(strategy, v, scalar, method):
    def run():
        method(v, replica()[0])
        return v + 0.0

    return strategy.experimental_local_results(strategy.run(run))[0]


def in_merge_call(strategy, v, scalar, method):
    def merge(strategy):
        method(v, 0.0)

    def run():
        replica()[1].merge_call(merge)
        return v + 0.0

    return strategy.experimental_local_results(strategy.run(run))[0]


def in_the_scope(strategy, v, scalar, method):
    with strategy.scope():
        method(v, 0.0)
        return v + 0.0


def outside(strategy, v, scalar, method):
    method(v, 0.0)
    return v + 0.0


def in_an_update(strategy, v, scalar, method):
    def update(copy):
        method(v, copy)
        return copy.assign(tf.reduce_sum(v))

    with strategy.scope():
        strategy.extended.update(scalar, update)
        return tf.convert_to_tensor(scalar)


def in_its_own_update(strategy, v, scalar, method):
    with strategy.scope():
        strategy.extended.update(v, lambda own: method(own, 0.0))
        return v + 0.0


def on_a_tape(strategy, v, scalar, method):
    def run():
        with tf.GradientTape() as tape:
            before = tf.reduce_sum(v**2)
            method(v, replica()[0])
            loss = before + tf.reduce_sum(v**3)
        return tape.gradient(loss, v)

    return strategy.experimental_local_results(strategy.run(run))[0]


CONTEXTS = {
    one.__name__: one
    for one in (
        in_replicas,
        in_merge_call,
        in_the_scope,
        outside,
        in_an_update,
        in_its_own_update,
        on_a_tape,
    )
}


def outcome(shard, method, context, aggregation, is_function):
    """What a cell reads, then the variable's value; or the error's type."""
    strategy = strategy_of(shard)
    v, scalar = made(strategy, aggregation)

    def call():
        return CONTEXTS[context](strategy, v, scalar, METHODS[method])

    try:
        read = tf.function(call, autograph=False)() if is_function else call()
    except (NotImplementedError, ValueError) as error:
        np.testing.assert_array_equal(v.numpy(), START)
        return type(error).__name__, str(error)
    assert shard in ("stock", None) or len(v.parts) == 3
    return read.numpy(), v.numpy()


expected = functools.cache(outcome)

AGGREGATED = {"assign", "assign_add", "scatter_add", "scatter_update"}
"""Methods of which all aggregations are compared."""


def is_quick(shard, method, context, aggregation, is_function):
    """Every third cell, eager or traced where both are compared."""
    places = [list(METHODS).index(method), list(CONTEXTS).index(context)]
    if aggregation != "NONE" and context != "in_replicas":
        return (sum(places) + list(AGGREGATIONS).index(aggregation)) % 3 == 0
    if (sum(places) + (aggregation != "NONE")) % 2 != is_function:
        return False
    return shard == "weights" and sum(places) % 4 < 2


TABLE = [
    pytest.param(*cell, marks=() if is_quick(*cell) else pytest.mark.nightly)
    for cell in itertools.product(
        SHARDS, METHODS, CONTEXTS, AGGREGATIONS, (False, True)
    )
    for shard, method, context, aggregation, is_function in [cell]
    if (shard == "weights" or method in ("assign_add", "scatter_add"))
    and (
        aggregation == "NONE"
        or (method in AGGREGATED and shard == "weights")
        and (context == "in_replicas" or not is_function)
    )
]


@pytest.mark.parametrize("shard, method, context, aggregation, traced", TABLE)
def test_as_mirrored_variables(shard, method, context, aggregation, traced):
    cell = method, context, aggregation, traced
    is_lacking = method in OF_OURS
    found = outcome(shard, *cell)
    wanted = expected(None if is_lacking else "stock", *cell)
    assert len(found) == len(wanted)
    if isinstance(wanted[0], str):
        assert found[0] == wanted[0]
        return
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# Optimizers and layers in loops of TensorFlow's own ----------------------------

ROWS = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
NUMBERS = np.array([[0, 2], [2, 2], [5, 1], [3, 0], [1, 4], [4, 4]])


def dense_layers(optimizer):
    x = inputs = keras.Input((4,))
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    model = keras.Model(inputs, keras.layers.Dense(5, "tanh")(x))
    return model, optimizer, ROWS


def table(optimizer):
    inputs = keras.Input((2,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Embedding(6, 3)(inputs))
    return model, optimizer, NUMBERS


def loss_scaled():
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1, 0.9), initial_scale=8.0
    )


OPTIMIZERS = keras.optimizers
LOOPS = {
    "momentum": lambda: dense_layers(OPTIMIZERS.SGD(0.1, 0.9, True)),
    "clipped adamw": lambda: dense_layers(
        OPTIMIZERS.AdamW(0.1, clipnorm=0.1, use_ema=True)
    ),
    "loss scale": lambda: dense_layers(loss_scaled()),
    "adagrad of rows": lambda: table(OPTIMIZERS.Adagrad(0.5)),
}


def trained(shard, name):
    """Weights and slots after three steps, of which one is eager."""
    strategy = strategy_of(shard)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer, data = LOOPS[name]()
        optimizer.build(model.trainable_variables)

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(batch, training=True) - 1) ** 2) / 6
            scaled = optimizer.scale_loss(loss)
        variables = model.trainable_variables
        gradients = tape.gradient(scaled, variables)
        optimizer.apply_gradients(zip(gradients, variables))
        return loss

    def run(batch):
        return strategy.reduce("SUM", strategy.run(step, (batch,)), axis=None)

    batch = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(
            data[context.replica_id_in_sync_group * 2 :][:2]
        )
    )
    losses = [float(f(batch)) for f in (tf.function(run), run, run)]
    variables = [*model.variables, *optimizer.variables]
    return losses, [variable.numpy() for variable in variables]


reference = functools.cache(functools.partial(trained, "stock"))


@pytest.mark.nightly  # About 4 s each.
@pytest.mark.parametrize("name, shard", list(zip(LOOPS, SHARDS[::-1] * 2)))
def test_a_custom_loop_trains_as_with_mirrored_variables(name, shard):
    losses, state = trained(shard, name)
    expected_losses, expected_state = reference(name)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for ours, theirs in zip(state, expected_state, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


# What can't be ------------------------------------------------------------------


@pytest.mark.parametrize("traced", [False, True])
def test_an_update_that_differs_between_replicas_is_refused(traced):
    strategy = strategy_of("weights")
    v, _ = made(strategy)

    def merge(strategy, value):
        strategy.extended.update(v, lambda own, x: own.assign(x), args=(value,))

    def run():
        number, context = replica()
        context.merge_call(merge, args=(dense(number),))

    call = functools.partial(strategy.run, run)
    error = tf.errors.InvalidArgumentError if traced else InputError
    with pytest.raises(error, match="Variable:0.* is sharded.*differs between"):
        (tf.function(call, autograph=False) if traced else call)()
    np.testing.assert_array_equal(v, START)


def test_a_change_in_a_branch_of_a_replica_is_refused():
    strategy = strategy_of("weights")
    v, _ = made(strategy)

    def run():
        number, _ = replica()
        tf.cond(number >= 0, lambda: v.assign_add(START), lambda: v + 0)

    with pytest.raises(InputError, match="'Variable:0' is sharded.*a branch"):
        tf.function(lambda: strategy.run(run), autograph=False)()
    np.testing.assert_array_equal(v, START)


def test_variables_that_are_combined_when_read_stay_whole():
    strategy = strategy_of("weights")
    with strategy.scope():
        v = tf.Variable(
            START,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
    strategy.run(lambda: v.assign(dense(replica()[0])))
    np.testing.assert_allclose(v.numpy(), dense(1))
