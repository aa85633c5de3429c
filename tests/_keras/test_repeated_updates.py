"""Updates that are copied make the step that traced ones make."""

import ast
import contextlib
import inspect
import textwrap

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import optimizers
from keras.src.backend.tensorflow.optimizer import TFOptimizer

from kerasmgpu import schedules
from kerasmgpu._keras import repeated_updates
from kerasmgpu.partitioner.runtime import repeated
from kerasmgpu.strategies.layout_report import prepared_step
from tests.partitioner.canonical import Canonical, difference
from tests.strategies.sharded import mirrored

X = np.random.default_rng(0).integers(5, size=(13, 3))
Y = np.zeros((13, 2), "float32")

SETTINGS = {
    "clipnorm": {"clipnorm": 1.0, "weight_decay": 0.1},
    "accumulation": {"gradient_accumulation_steps": 2, "weight_decay": 0.1},
    "ema": {"use_ema": True, "ema_overwrite_frequency": 2},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "one": {},
    "weight_decay": {"weight_decay": 0.1},
}
"""The first three are in the quick tier."""


def rate():
    return optimizers.schedules.CosineDecay(0.1, 10, warmup_steps=2)


OPTIMIZERS = {
    **{
        name: lambda settings=settings: optimizers.Adam(0.1, **settings)
        for name, settings in SETTINGS.items()
    },
    "adadelta": lambda: optimizers.Adadelta(0.1),
    "adafactor": lambda: optimizers.Adafactor(0.1),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adam": lambda: optimizers.Adam(0.1),
    "amsgrad": lambda: optimizers.Adam(0.1, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(rate()),
    "adamax": lambda: optimizers.Adamax(0.1),
    "ftrl": lambda: optimizers.Ftrl(0.1),
    "lamb": lambda: optimizers.Lamb(0.1),
    "lion": lambda: optimizers.Lion(0.1),
    "nadam": lambda: optimizers.Nadam(0.1),
    "rmsprop": lambda: optimizers.RMSprop(0.1, centered=True, momentum=0.9),
    "sgd": lambda: optimizers.SGD(0.1),
    "nesterov": lambda: optimizers.SGD(rate(), momentum=0.9, nesterov=True),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.1)),
}


def model_of(optimizer, other):
    """Has weights of one shape, some of another type, and a sparse gradient."""
    inputs = keras.Input((3,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(5, 2)(inputs))
    for dtype in ("float32", "float32", other, other, "float32"):
        x = keras.layers.Dense(6, "tanh", dtype=dtype)(x)
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def written(optimizer, **settings):
    """The written step of a model with this optimizer on two replicas."""
    settings = {"shard": None, **settings}
    with mirrored(2, **settings).scope():
        made = optimizer()
        of_one_type = made.global_clipnorm or isinstance(made, optimizers.Muon)
        # Keras's global norms and Muon are for weights of one type.
        model = model_of(made, "float32" if of_one_type else "float64")
    return Canonical(prepared_step(model, (X, Y))[0].written().library)


@contextlib.contextmanager
def nothing_copied():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeated, "_copies_into", lambda graph: False)
        yield


def assert_same(optimizer, copies, **settings):
    ours = written(optimizer, **settings)
    number = len(copies)
    with nothing_copied():
        traced = written(optimizer, **settings)
    assert len(copies) == number
    if ours.digest() != traced.digest():
        pytest.fail(difference(traced.lines(), ours.lines()))


@pytest.mark.nightly(but=3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_written_step_is_the_same(name, copies):
    assert_same(OPTIMIZERS[name], copies)
    # Float32: 4 of 5 vectors; 2 of 3 kernels. Float64: a vector, a kernel.
    assert len(copies) >= 8


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"shard": "weights"},
        {"shard": "optimizer", "offload": "optimizer"},
        {"micro_batches": 2},
    ],
    ids=str,
)
def test_the_written_step_is_the_same_with(settings, copies):
    assert_same(OPTIMIZERS["adamw"], copies, **settings)
    assert len(copies) >= 8


class ByName(optimizers.SGD):
    """Updates kernels faster."""

    def update_step(self, gradient, variable, learning_rate):
        factor = 2.0 if "kernel" in variable.name else 1.0
        super().update_step(gradient, variable, factor * learning_rate)


def of_one_object():
    optimizer = optimizers.SGD(0.1)
    update_step, calls = optimizer.update_step, []

    def slower(gradient, variable, learning_rate):
        calls.append(variable)
        update_step(gradient, variable, learning_rate / len(calls))

    object.__setattr__(optimizer, "update_step", slower)
    return optimizer


def of_two_kinds():
    return optimizers.Muon(0.1, exclude_layers=["dense_1"])


@pytest.mark.parametrize("optimizer", [ByName, of_one_object, of_two_kinds])
def test_what_looks_at_more_than_shapes_is_traced(optimizer, copies):
    written(optimizer)
    assert not copies


def test_weights_without_decay_are_another_kind(copies):
    def optimizer():
        made = optimizers.SGD(0.1, weight_decay=0.1)
        made.exclude_from_weight_decay(var_names=["bias"])
        return made

    assert_same(optimizer, copies)


@pytest.mark.slow
def test_rates_that_draw_are_drawn_for_each_variable(copies):
    class Drawn(optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return tf.random.uniform(())

    def optimizer():
        return optimizers.SGD(Drawn(), weight_decay=0.1)

    tf.random.set_seed(1)
    assert_same(optimizer, copies)


class Constant(keras.Model):
    """Applies gradients that are known before its step is traced."""

    def train_step(self, data):
        with tf.init_scope():
            gradients = [
                tf.fill(variable.shape, tf.cast(number, variable.dtype))
                for number, variable in enumerate(self.trainable_variables)
            ]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": 0.0}


def test_gradients_of_known_values_are_clipped_one_by_one(copies):
    with mirrored(2, shard=None).scope():
        inputs = keras.Input((3,))
        x = keras.layers.LayerNormalization(center=False)(inputs)
        x = keras.layers.LayerNormalization(center=False)(x)
        model = Constant(inputs, x)
        model.compile(optimizers.SGD(1.0, clipnorm=1.0))
    model.train_on_batch(X)
    first, second = [weight[0] for weight in model.get_weights()]
    assert (first, second) == pytest.approx((1, 1 - 3**-0.5))
    assert len(copies) == 1  # The second update.


def test_nothing_is_copied_where_replicas_merge(copies):
    strategy = mirrored(2, shard=None)
    with strategy.scope():
        weights = [keras.Variable(np.ones(3)) for _ in range(2)]
        optimizer = optimizers.Adam(0.1, clipnorm=1.0, use_ema=True)
        optimizer.build(weights)

    @tf.function
    def step():
        gradients = [tf.ones(3), tf.fill([3], 2.0)]
        strategy.run(lambda: optimizer.apply(gradients, weights))

    step()
    assert not copies
    np.testing.assert_allclose(weights, np.full((2, 3), 0.9), atol=1e-5)


class Counted(optimizers.schedules.LearningRateSchedule):
    """Is another rate each time that it is asked."""

    calls = 0

    def __call__(self, step):
        self.calls += 1
        return 0.1 * self.calls


@pytest.mark.parametrize(
    "rate", [Counted, lambda: schedules.WarmUp(Counted(), 2)]
)
def test_rates_of_a_user_are_asked_for_each_decay(rate, copies):
    def optimizer():
        return optimizers.SGD(rate(), weight_decay=0.1)

    assert_same(optimizer, copies)
    assert copies  # Updates are.


def looked_at(function, name):
    """The attributes of an argument that a function's code names."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    }


@pytest.mark.parametrize(
    "kind", repeated_updates.READ, ids=lambda kind: kind.__name__
)
def test_keras_looks_at_no_more_than_what_was_read(kind):
    step = kind.update_step
    assert looked_at(step, "variable") <= {"dtype", "shape"}
    assert looked_at(step, "gradient") | looked_at(step, "grad") == set()
    tree = ast.parse(textwrap.dedent(inspect.getsource(step)))
    stored = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.Attribute, ast.Subscript))
        and not isinstance(node.ctx, ast.Load)
    ]
    assert not stored
    called = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    }
    change = {"assign", "assign_add", "assign_sub"}
    assert called <= {*change, "_get_variable_index", "_rms"}


def test_a_decay_looks_at_no_more_than_what_was_read():
    decay = TFOptimizer._apply_weight_decay.__wrapped__
    known = {"assign_sub", "dtype", "value"}
    assert looked_at(decay, "variable") <= known
    known = {"_distribution_strategy", "learning_rate", "weight_decay"}
    assert looked_at(decay, "self") == {*known, "_use_weight_decay"}
