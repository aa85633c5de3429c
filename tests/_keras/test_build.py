"""Variables that Keras makes late: where, how often, and for which shapes."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from kerasmgpu._keras import build
from kerasmgpu.errors import InputError

random = np.random.RandomState(0)
LOGITS = random.randn(19, 3)
CONFIDENCE = random.rand(19)
CLASSES = random.randint(0, 3, (19, 1))


def graph():
    """Inputs that aren't in the order of their names, and an output."""
    logits = keras.Input((3,), name="logits")
    confidence = keras.Input((1,), name="confidence")
    scaled = layers.Multiply()([logits, layers.Dense(1)(confidence)])
    return [logits, confidence], layers.Softmax()(scaled)


class OneHot(keras.Model):
    """Trains on other targets than the data's."""

    def train_step(self, data):
        x, y = data
        return super().train_step((x, tf.one_hot(y[:, 0], 3)))


def compiled(kind=keras.Model, loss="sparse_categorical_crossentropy"):
    model = kind(*graph())
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def fitted(model):
    x = {"logits": LOGITS, "confidence": CONFIDENCE}
    history = model.fit(x, CLASSES, batch_size=8, shuffle=False, verbose=0)
    return [*history.history.values(), *model.get_weights()]


def named_columns(scope):
    with scope():
        model = compiled()
    return fitted(model)


def other_targets_in_the_step(scope):
    with scope():
        model = compiled(OneHot, "categorical_crossentropy")
    return fitted(model)


def layer_that_slices(scope):
    class Differences(layers.Layer):
        def call(self, x):
            return x[:, 1:] - x[:, :-1]

    with scope():
        inputs, outputs = graph()
        sliced = Differences()(inputs[0])
        model = keras.Model(inputs, layers.concatenate([outputs, sliced]))
        model.compile("sgd", "sparse_categorical_crossentropy")
    return fitted(model)


def small_model(scope, with_input=True):
    with scope():
        parts = [layers.Dense(4, "tanh"), layers.Dense(1)]
        if with_input:
            parts.insert(0, layers.Input((3,)))
        model = keras.Sequential(parts)
        model.compile("adam", "mse", metrics=["mae"])
    return model


def fitted_small(model):
    history = model.fit(LOGITS, CLASSES, shuffle=False, verbose=0).history
    return [*history.values(), *model.get_weights()]


def metrics_by_hand(scope):
    model = small_model(scope)
    x = tf.constant(LOGITS, "float32")
    model.compute_metrics(x, CLASSES, model(x))
    return fitted_small(model)


def steps_by_hand(scope):
    model = small_model(scope)
    batch = tf.constant(LOGITS, "float32"), tf.constant(CLASSES)
    logs = [model.train_step(batch), model.test_step(batch)]
    return [*tf.nest.flatten(logs), *fitted_small(model)]


def called_before_fit(scope):
    model = small_model(scope, with_input=False)
    model(LOGITS)
    return fitted_small(model)


def built_before_fit(scope):
    model = small_model(scope, with_input=False)
    model.build((None, 3))
    model.optimizer.build(model.trainable_variables)
    return fitted_small(model)


def adapted_before_fit(scope):
    with scope():
        normalization = layers.Normalization()
    normalization.adapt(LOGITS)
    with scope():
        model = keras.Sequential([layers.Input((3,)), normalization])
        model.add(layers.Dense(1))
        model.compile("sgd", "mse")
    return fitted_small(model)


class Branching(keras.Model):
    """Scales the loss in a step whose optimizer is not built yet."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        factor = 1.0 if self.optimizer.built else 3.0
        with tf.GradientTape() as tape:
            loss = factor * self.compute_loss(x, y, self(x))
        weights = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def branching_on_the_optimizer(scope):
    with scope():
        model = Branching()
        model.compile("adam", "mse")
    return fitted_small(model)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "program",
    [
        branching_on_the_optimizer,
        named_columns,
        other_targets_in_the_step,
        layer_that_slices,
        metrics_by_hand,
        steps_by_hand,
        called_before_fit,
        built_before_fit,
        adapted_before_fit,
    ],
)
def test_as_on_one_device(program, replicas):
    results = []
    for scope in (contextlib.nullcontext, replicas(2).scope):
        keras.utils.set_random_seed(3)
        results.append(program(scope))
    for ours, expected in zip(*reversed(results), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-6)


def test_a_first_step_is_traced_once(replicas):
    """Although the optimizer, a metric and two losses make variables in it."""
    traced = []

    class Counted(keras.Model):
        def train_step(self, data):
            traced.append(True)
            return super().train_step(data)

    with replicas(2).scope():
        inputs = keras.Input((3,))
        outputs = [layers.Dense(1)(inputs), layers.Dense(1)(inputs)]
        model = Counted(inputs, outputs)
        model.compile("adam", "mse", metrics=[["mae"], ["mae"]])
    model.fit(LOGITS, [CLASSES, CLASSES], verbose=0)
    assert len(traced) == 1


def test_an_optimizer_that_no_step_names_gets_no_slots(replicas):
    """As on one device: GANs pass none on to `compile`, and train with others."""

    class Adversarial(keras.Model):
        def compile(self, own):
            super().compile()
            self.own = own

        def train_step(self, data):
            def loss_and_gradients():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(self(data) ** 2)
                return loss, tape.gradient(loss, self.trainable_variables)

            loss, gradients = loss_and_gradients()
            self.own.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    with replicas(2).scope():
        inputs = keras.Input((3,))
        model = Adversarial(inputs, layers.Dense(1)(inputs))
        model.compile(keras.optimizers.Adam())
    model.fit(LOGITS, verbose=0)
    assert model.own.built and not model.optimizer.built


def test_code_that_makes_variables_is_traced_twice(replicas):
    traced = []

    class Making(keras.Model):
        def train_step(self, data):
            traced.append(hasattr(self, "made"))
            if not hasattr(self, "made"):
                self.made = tf.Variable(1.0)
            return super().train_step(data)

    with replicas(2).scope():
        inputs = keras.Input((3,))
        model = Making(inputs, layers.Dense(1)(inputs))
        model.compile("adam", "mse")
    model.fit(LOGITS, CLASSES, verbose=0)
    assert traced == [False, True]


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [OneHot, keras.Model])
def test_what_is_restored_is_made_as_by_the_first_step(kind):
    loss = "categorical_crossentropy"
    if kind is keras.Model:
        loss = f"sparse_{loss}"
    results = []
    for prepared in (False, True):
        keras.utils.set_random_seed(3)
        model = compiled(kind, loss)
        if prepared:
            x = {"logits": LOGITS, "confidence": CONFIDENCE}
            data = tf.data.Dataset.from_tensor_slices((x, CLASSES)).batch(8)
            build.build_as_first_step(model, data.element_spec)
            assert model.optimizer.built and model._compile_metrics.built
        results.append(fitted(model))
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)


def test_a_model_outside_can_not_train_layers_of_the_scope(replicas):
    with replicas(2).scope():
        layer = layers.Dense(1)
    inputs = keras.Input((3,))
    model = keras.Model(inputs, layer(inputs))
    model.compile("adam", "mse")
    model.evaluate(LOGITS, CLASSES, verbose=0)
    with pytest.raises(InputError, match="Move the line that builds it"):
        model.fit(LOGITS, CLASSES, verbose=0)


class Lookahead(keras.optimizers.SGD):
    """Its `build` copies the weights, with a function that hides it."""

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.slow = self.add_optimizer_variables(variables, ["slow"])[0]
        self.copy(variables)

    def copy(self, variables):
        for slow, variable in zip(self.slow, variables):
            slow.assign(variable + 1)

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)
        slow = self.slow[self._get_variable_index(variable)]
        self.assign(slow, 0.5 * (slow + variable))
        self.assign(variable, slow)


@pytest.mark.parametrize(
    "make, by_hand",
    [
        pytest.param(
            lambda: keras.optimizers.ScheduleFreeAdamW(0.02),
            False,
            marks=pytest.mark.nightly,
        ),
        (lambda: keras.optimizers.ScheduleFreeAdamW(0.02), True),
        (
            lambda: keras.optimizers.LossScaleOptimizer(
                Lookahead(0.02), initial_scale=8.0
            ),
            False,
        ),
    ],
)
def test_a_build_that_assigns_is_as_on_one_device(make, by_hand, replicas):
    results = []
    for scope in (contextlib.nullcontext, replicas(2).scope):
        keras.utils.set_random_seed(4)
        with scope():
            model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
            model.compile(make(), "mse")
            if by_hand:
                model.optimizer.build(model.trainable_variables)
        history = model.fit(LOGITS, LOGITS[:, :2], 8, 2, 0, shuffle=False)
        variables = [v.numpy() for v in model.optimizer.variables]
        results.append(
            [history.history["loss"], *model.get_weights(), *variables]
        )
    for ours, expected in zip(*reversed(results), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)
