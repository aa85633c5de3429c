"""Sharded variables are read whole, wherever TensorFlow's variables are read."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from tests.strategies.sharded import mirrored

START = np.arange(1, 7, dtype="float32").reshape(2, 3)
IMAGES = np.random.default_rng(0).normal(size=(3, 5, 5, 4)).astype("float32")


@pytest.fixture(scope="module")
def strategy():
    return mirrored(2, "weights")


@pytest.fixture
def variable(strategy):
    with strategy.scope():
        return tf.Variable(START)


@pytest.fixture(params=["inside", "outside"])
def scope(request, strategy):
    return strategy.scope if request.param == "inside" else lambda: OUTSIDE


OUTSIDE = contextlib.nullcontext()

# Values and gradients of a variable -------------------------------------------


def once(v):
    return tf.reduce_sum(v**2)


def in_a_loop(v):
    def body(i, total):
        return i + 1, total + tf.reduce_sum(v**2)

    start = (0, 0.0)
    return tf.while_loop(lambda i, _: i < 3, body, start, maximum_iterations=3)[
        1
    ]


def in_a_branch(v):
    return tf.cond(tf.reduce_sum(v) > 0, lambda: once(v), lambda: 0.0)


def in_a_function(v):
    return tf.function(lambda: once(v) + tf.reduce_sum(v))()


def by_rows(v):
    return tf.reduce_sum(tf.gather(v, [1, 1]) ** 2)


READS = [once, in_a_loop, in_a_branch, in_a_function, by_rows]


def gradient(function, v):
    with tf.GradientTape() as tape:
        result = function(v)
    return result, tf.convert_to_tensor(tape.gradient(result, v))


def eager(read, v):
    return gradient(read, v)


def function_with_a_tape(read, v, **keywords):
    return tf.function(lambda: gradient(read, v), autograph=False, **keywords)()


def tape_around_a_function(read, v, **keywords):
    function = tf.function(lambda: read(v), autograph=False, **keywords)
    function()  # Later calls aren't traced.
    return gradient(lambda _: function(), v)


def compiled_function_with_a_tape(read, v):
    return function_with_a_tape(read, v, jit_compile=True)


def tape_around_a_compiled_function(read, v):
    return tape_around_a_function(read, v, jit_compile=True)


def compiled_function_in_a_function(read, v):
    compiled = tf.function(lambda: read(v), autograph=False, jit_compile=True)
    return function_with_a_tape(lambda _: compiled(), v)


WAYS = [
    eager,
    function_with_a_tape,
    tape_around_a_function,
    compiled_function_with_a_tape,
    tape_around_a_compiled_function,
    compiled_function_in_a_function,
]


UNSUPPORTED = [
    (in_a_loop, tape_around_a_compiled_function),
    (in_a_loop, compiled_function_in_a_function),
    (in_a_branch, compiled_function_in_a_function),
]
"""Lists of a gradient don't cross XLA's boundary, of whichever variable."""

ROWS = [
    # In the scope for a row, outside for the next.
    (("inside", "outside")[(i + j) % 2], read, way)
    for i, read in enumerate(READS)
    for j, way in enumerate(WAYS)
    if (read, way) not in UNSUPPORTED
]
"""Every other one is in the quick tier."""


@pytest.mark.parametrize(
    "scope, read, way",
    [
        pytest.param(*row, marks=pytest.mark.nightly if n % 2 else ())
        for n, row in enumerate(ROWS)
    ],
    indirect=["scope"],
)
def test_as_plain_variables(way, read, variable, scope):
    plain = way(read, tf.Variable(START))
    with scope():
        ours = way(read, variable)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("read", [in_a_loop, in_a_branch])
def test_a_compiled_function_with_control_flow(read, variable, scope):
    with scope():
        ours = tf.function(lambda: read(variable), jit_compile=True)()
    np.testing.assert_allclose(ours, read(tf.Variable(START)))


@pytest.mark.parametrize("way", [eager, tape_around_a_compiled_function])
def test_in_replicas(way, variable, strategy):
    results = strategy.run(lambda: way(once, variable))
    plain = way(once, tf.Variable(START))
    for ours, expected in zip(results, plain, strict=True):
        for one in strategy.experimental_local_results(ours):
            np.testing.assert_allclose(one, expected)


def test_a_compiled_function_reads_at_each_call(variable):
    """Also what its caller has assigned just before."""
    compiled = tf.function(lambda: variable + 0, jit_compile=True)

    @tf.function
    def assigned(factor):
        before = compiled()
        variable.assign(before * factor)
        return compiled() - before

    np.testing.assert_array_equal(compiled(), START)
    np.testing.assert_array_equal(assigned(3.0), START * 2)
    np.testing.assert_array_equal(compiled(), START * 3)


def test_a_function_that_was_traced_outside_is_called_compiled(variable):
    read = tf.function(lambda: variable * 2)
    read()
    np.testing.assert_array_equal(
        tf.function(lambda: read() + 0, jit_compile=True)(), START * 2
    )
    np.testing.assert_array_equal(read(), START * 2)


def test_a_compiled_function_that_assigns_is_refused(variable):
    compiled = tf.function(
        lambda: variable.assign_add(START), autograph=False, jit_compile=True
    )
    with pytest.raises(
        InputError, match="'Variable:0' is sharded.*jit_compile"
    ):
        compiled()
    np.testing.assert_array_equal(variable, START)


def test_a_variable_of_unknown_shape_stays_whole_and_keeps_it(strategy):
    with strategy.scope():
        variable = tf.Variable(START, shape=[None, 3])
    assert variable.shape.as_list() == [None, 3]
    variable.assign(START[:1])
    np.testing.assert_array_equal(variable, START[:1])


# Models -----------------------------------------------------------------------


def build():
    """Keras puts a grouped convolution into a compiled function."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((5, 5, 4)),
            layers.Conv2D(4, 3, groups=2),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )


@pytest.fixture(scope="module")
def models(strategy):
    plain = build()
    with strategy.scope():
        return plain, build()


def loaded(folder):
    module = tf.saved_model.load(str(folder))
    return module.serve(IMAGES)


def saved(model, folder):
    module = tf.Module()
    module.model = model
    module.serve = tf.function(
        model, input_signature=[tf.TensorSpec([None, 5, 5, 4])]
    )
    module.serve(IMAGES)
    tf.saved_model.save(module, str(folder))
    return functools.partial(loaded, folder)


def exported(model, folder):
    model.export(folder, verbose=False)
    return functools.partial(loaded, folder)


USES = {
    "a call": lambda model, folder: model(IMAGES),
    "tf.function": lambda model, folder: tf.function(model)(IMAGES),
    "jit_compile": lambda model, folder: tf.function(model, jit_compile=True)(
        IMAGES
    ),
    "tf.saved_model.save": saved,
    "model.export": exported,
}


@pytest.mark.nightly(but=5)
@pytest.mark.parametrize("use", USES)
def test_models(use, models, scope, tmp_path):
    plain, ours = models
    with scope():
        result = USES[use](ours, tmp_path)
    if callable(result):  # What was saved is loaded as elsewhere.
        result = result()
    np.testing.assert_allclose(result, plain(IMAGES), rtol=1e-5, atol=1e-6)


def test_a_trace_from_before_the_export_is_refused(variable, tmp_path):
    """It reads parts; TensorFlow says what to pass instead."""
    module = tf.Module()
    module.variable = variable
    traced = tf.function(
        lambda: {"value": variable + 0}
    ).get_concrete_function()
    with pytest.raises(ValueError, match="cannot be saved"):
        tf.saved_model.save(module, str(tmp_path), signatures=traced)


def test_gradients_of_a_model(models, scope):
    found = []
    for model in models:
        with scope(), tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(IMAGES) ** 2)
        found.append(tape.gradient(loss, model.trainable_variables))
    for ours, expected in zip(*reversed(found), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)
