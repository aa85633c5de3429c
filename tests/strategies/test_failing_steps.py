"""A step that fails leaves the copies of a variable equal, as on one device.

What fails on one device stops only what needs it. So the state behind each step
here is one device's, however often it runs.
"""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.devices import device_names
from tests.strategies.sharded import mirrored

ROWS, RUNS = 24, 2
X = np.random.default_rng(0).normal(size=(2 * ROWS, 6)).astype("float32")
Y = X[:, :1] - X[:, 1:2]
BAD = X.copy()
BAD[ROWS + 5, 0] = 99.0
NAN = X.copy()
NAN[ROWS + 5, 0] = np.nan


class Checked(keras.Model):
    """A small network, whose batches a function looks at before each step."""

    def __init__(self, look):
        super().__init__()
        self.look = look
        self.inner = keras.Sequential(
            [
                keras.layers.Dense(5, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5, seed=1),
                keras.layers.Dense(1),
            ]
        )

    def call(self, x, training=False):
        return self.inner(x, training=training)

    def train_step(self, data):
        x, y = data
        seen = self.look(x)
        return super().train_step((x if seen is None else seen, y))


def aside(x):
    tf.debugging.assert_less(x, 50.0)


def before(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 50.0)]):
        return tf.identity(x)


def raising(values):
    if np.max(values) > 50.0:
        raise ValueError("too large")
    return values


def in_numpy(x):
    seen = tf.numpy_function(raising, [x], tf.float32)
    seen.set_shape(x.shape)
    return seen


def in_python(x):
    tf.py_function(lambda x: raising(x.numpy()), [x], tf.float32)


def in_a_branch(x):
    def fail():
        tf.debugging.Assert(False, ["too large"])
        return 0.0

    return x * tf.cond(tf.reduce_max(x) < 50.0, lambda: 1.0, fail)


class Finite(keras.Model):
    """Checks what the network makes of the rows."""

    def __init__(self):
        super().__init__()
        self.inner = Checked(lambda x: None).inner

    def call(self, x, training=False):
        return tf.debugging.check_numerics(self.inner(x, training=training), "")


def looked_up(x):
    """Fails where no check does, in a step that has one."""
    tf.debugging.assert_less(x, 1e6)
    index = tf.cast(tf.abs(x[:, :1]), tf.int32) // 50
    return x * tf.gather([1.0], index)


def of(look, **settings):
    def made():
        model = Checked(look)
        optimizer = keras.optimizers.Adam(**settings)
        model.compile(optimizer, "mse", metrics=["mae"])
        return model, BAD

    return made


def scaled():
    model, x = of(aside)()
    inner = keras.optimizers.Adam(global_clipnorm=1.0)
    model.compile(keras.optimizers.LossScaleOptimizer(inner), "mse")
    return model, x


def finite():
    model = Finite()
    model.compile("adam", "mse", metrics=["mae"])
    return model, NAN


QUICK = {"assertion aside"}
SLOW = {"branch", "py_function"}

PROGRAMS = {
    "assertion aside": of(aside),
    "assertion before": of(before),
    "numpy_function": of(in_numpy),
    "py_function": of(in_python),
    "branch": of(in_a_branch),
    "check_numerics": finite,
    "accumulation": of(
        aside,
        gradient_accumulation_steps=2,
        use_ema=True,
        ema_overwrite_frequency=2,
    ),
    "loss scale": scaled,
    "index": of(looked_up),
}

SETTINGS = {
    "weights": lambda: mirrored(3, "weights"),
    "optimizer": lambda: mirrored(3, "optimizer"),
    "four": lambda: kerasmgpu.MirroredStrategy(device_names(4)),
    "mesh": lambda: kerasmgpu.strategy(
        mesh=(2, 2), layout={".*kernel": (None, "model")}
    ),
}


def fitted(program, strategy=None):
    """The state behind a `fit` whose second step fails, and the copies apart."""
    keras.utils.set_random_seed(0)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model, x = program()
    with pytest.raises(tf.errors.InvalidArgumentError):
        model.fit(x, Y, batch_size=ROWS, shuffle=False, verbose=0)
    variables = model.variables + model.optimizer.variables
    apart = [
        variable.path
        for variable in variables
        for copies in [getattr(variable.value, "values", [])]
        if "metric" not in variable.path
        and not all(
            np.array_equal(copies[0], copy, equal_nan=True) for copy in copies
        )
    ]
    assert apart == []
    return [np.array(variable) for variable in variables]


@pytest.fixture(scope="module")
def alone():
    """Function that returns the state on one device."""
    found = {}

    def run(name):
        if name not in found:
            found[name] = fitted(PROGRAMS[name])
        return found[name]

    return run


def check(expected, name, strategies):
    """Each run ends alike, and as `expected`, if that is given."""
    first = None
    for strategy in strategies:
        state = fitted(PROGRAMS[name], strategy)
        first = state if first is None else first
        for same, own in zip(first, state, strict=True):
            np.testing.assert_array_equal(own, same)
        for one, own in zip(expected or state, state, strict=True):
            np.testing.assert_allclose(own, one, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=()
            if name in QUICK
            else [pytest.mark.slow if name in SLOW else pytest.mark.nightly],
        )
        for name in PROGRAMS
    ],
)
def test_three_replicas_are_as_one_device(alone, name):
    three = kerasmgpu.MirroredStrategy(device_names(3))
    check(alone(name), name, [three] * RUNS)


@pytest.mark.nightly(but=2)
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_divided_state_is_as_on_one_device(alone, setting):
    strategy = SETTINGS[setting]()
    check(alone("assertion aside"), "assertion aside", [strategy] * 3)


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_divided_state_ends_alike_each_time(setting):
    """Moving averages before the check are assigned, or aren't, by the setting."""
    check(None, "check_numerics", [SETTINGS[setting]()] * 3)
