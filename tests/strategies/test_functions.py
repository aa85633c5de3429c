"""Functions that are partitioned over devices give what they give on one."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.errors import InputError
from kerasmgpu.strategies.functions import make_parallel, partition
from tests.devices import device_name, device_names

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def assert_same(ours, expected):
    tf.nest.assert_same_structure(ours, expected)
    for a, b in zip(tf.nest.flatten(ours), tf.nest.flatten(expected)):
        if isinstance(b, tf.SparseTensor):
            a, b = tf.sparse.to_dense(a), tf.sparse.to_dense(b)
        if isinstance(b, tf.RaggedTensor):
            assert a.to_list() == b.to_list()
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


W = tf.Variable(normal(4, 3))
SCALE = tf.constant(normal(3))


def predict(x):
    """A nest of outputs, of several types; closes over a tensor too."""
    logits = tf.tanh(x @ W) * SCALE
    return {"logits": logits, "best": (tf.argmax(logits, 1), x[:, 0] > 0)}


def with_gradients(fn, x):
    """Outputs, and gradients of inputs, variables and closed-over tensors."""
    with tf.GradientTape() as tape:
        tape.watch([x, SCALE])
        outputs = fn(x)
        loss = tf.reduce_sum(outputs["logits"] ** 2)
    return outputs, tape.gradient(loss, [x, SCALE, W])


@pytest.mark.parametrize(
    "num_replicas, rows",
    [
        *((2, rows) for rows in (7, 1)),
        *((8, rows) for rows in (16, 5, 0)),
        *(
            pytest.param(1, rows, marks=pytest.mark.nightly)
            for rows in (16, 7, 5, 1, 0)
        ),
    ],
)
def test_outputs_and_gradients_are_those_of_the_unsplit_function(
    num_replicas, rows
):
    x = tf.constant(normal(rows, 4))
    parallel = make_parallel(predict, num_replicas)
    expected = with_gradients(predict, x)
    assert_same(with_gradients(parallel, x), expected)
    assert_same(tf.function(with_gradients)(parallel, x), expected)


def test_unknown_batch_sizes_down_to_no_row():
    # An average over no rows is NaN; so would be the gradients.
    def centred(x):
        return {
            "logits": x @ W - tf.stop_gradient(tf.reduce_mean(x)) * 0 * W[0]
        }

    parallel = make_parallel(centred, 4)
    step = tf.function(
        lambda x: with_gradients(parallel, x),
        input_signature=[tf.TensorSpec([None, 4])],
    )
    for rows in (9, 4, 3, 1):
        x = tf.constant(normal(rows, 4))
        (outputs, (of_x, _, of_w)) = step(x)
        expected, (x_expected, _, w_expected) = with_gradients(centred, x)
        assert_same((outputs, of_x, of_w), (expected, x_expected, w_expected))
    assert step(tf.zeros((0, 4)))[0]["logits"].shape == (0, 3)


def test_calls_with_many_batch_sizes_are_traced_a_few_times():
    traces = []
    parallel = make_parallel(lambda x: traces.append(1) or x * 2, 2)
    for rows in range(1, 20):
        x = normal(rows, 2)
        assert_same(parallel(x), x * 2)
    assert len(traces) <= 6


def test_second_derivatives():
    def cube(x):
        return x**3

    x = tf.constant(normal(5, 1))
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = make_parallel(cube, 2)(x)
        first = inner.gradient(y, x)
    assert_same(first, 3 * x**2)
    assert_same(outer.gradient(first, x), 6 * x)


def test_sparse_and_ragged_inputs_and_outputs():
    def fn(dense, sparse, ragged):
        return (
            tf.sparse.sparse_dense_matmul(sparse, W) + dense,
            tf.sparse.map_values(tf.square, sparse),
            ragged * 2.0,
        )

    rows = 5
    inputs = dict(
        dense=normal(rows, 3),
        sparse=tf.sparse.from_dense(np.eye(rows, 4, dtype="float32")),
        ragged=tf.ragged.constant([[1.0], [], [2.0, 3.0], [4.0], [5.0]]),
    )
    for num_replicas in (2, 8):
        parallel = make_parallel(fn, num_replicas)
        assert_same(parallel(**inputs), fn(**inputs))
        assert_same(tf.function(parallel)(**inputs), fn(**inputs))


def test_gradients_of_sparse_inputs():
    sparse = tf.sparse.from_dense(normal(5, 4))
    results = []
    for fn in (lambda s: tf.sparse.sparse_dense_matmul(s, W),) * 2:
        if results:
            fn = make_parallel(fn, 2)
        with tf.GradientTape() as tape:
            tape.watch(sparse.values)
            loss = tf.reduce_sum(fn(sparse) ** 2)
        results.append(tape.gradient(loss, [sparse.values, W]))
    assert_same(results[1], results[0])


def test_inputs_of_all_sorts():
    seen = []

    def fn(x, matrix, variable, factor, offset, name, flags):
        seen.append((factor, name, flags))
        return x @ matrix @ variable * factor + offset

    matrix, square, x = normal(4, 4), tf.Variable(normal(4, 4)), normal(4, 4)
    parallel = make_parallel(fn, 2)
    for factor in (3, 3, 4):
        ours = parallel(
            x,
            matrix,
            square,
            factor=factor,
            offset=tf.constant(1.0),
            name="name",
            flags={"a": (True, None)},
        )
        expected = x @ matrix @ square * factor + 1
        np.testing.assert_allclose(ours, expected, rtol=1e-4)
    # Another Python number is another trace.
    assert [factor for factor, *_ in seen] == [3, 4]
    assert seen[0][1:] == ("name", {"a": (True, None)})


def test_a_training_step_with_all_that_it_does():
    @tf.function
    def step(x, y, weights, total):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ weights)
            centred = hidden - tf.reduce_mean(hidden, 0)
            loss = tf.reduce_mean((tf.reduce_sum(centred, 1) - y) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        total.assign_add(tf.reduce_max(tf.sort(y)))
        if loss > 1e6:  # AutoGraph's.
            loss = tf.zeros_like(loss)
        return loss

    results = []
    first = normal(4, 3)
    batches = [(normal(n, 4), normal(n)) for n in (7, 7, 1, 3)]
    for decorate in (lambda fn: fn, partition(num_replicas=3)):
        variables = tf.Variable(first), tf.Variable(0.0)
        fn = decorate(step)
        losses = [fn(x, y, *variables) for x, y in batches]
        results.append([losses, [v.numpy() for v in variables]])
    assert_same(results[1], results[0])


def test_in_a_scope_variables_have_copies():
    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    with strategy.scope():
        variable = tf.Variable(normal(3))
        made = []

        @partition
        def step(x):
            if not made:
                made.append(tf.Variable(tf.ones(())))
            made[0].assign_add(1.0)
            variable.assign_add(tf.reduce_mean(x, 0))
            return made[0] * tf.reduce_sum(variable)

        x = normal(5, 3)
        expected = variable.numpy() + x.mean(0)
        result = step(x)
        with pytest.raises(InputError, match="num_replicas"):
            partition(step, num_replicas=2)
    np.testing.assert_allclose(result, 2 * expected.sum(), rtol=1e-5)
    for one in (variable, made[0]):
        first, second = one.values
        np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)


def test_functions_that_close_over_tensors_of_a_graph():
    @tf.function
    def outer(x, factor):
        return make_parallel(lambda x: x * factor, 2)(x)

    x = normal(3, 2)
    for factor in (2.0, 3.0):
        assert_same(outer(x, tf.constant(factor)), x * factor)


def test_variables_that_are_passed_have_gradients():
    for variable in (tf.Variable(normal(4, 2)), keras.Variable(normal(4, 2))):
        x = tf.constant(normal(3, 4))
        with tf.GradientTape() as tape:
            y = make_parallel(lambda x, v: tf.matmul(x, v), 2)(x, variable)
        source = getattr(variable, "value", variable)
        source = source if isinstance(source, tf.Variable) else variable
        gradient = tape.gradient(y, source)
        np.testing.assert_allclose(
            gradient, tf.transpose(x) @ tf.ones((3, 2)), rtol=1e-5
        )


def test_variables_are_created_once():
    layer = keras.layers.Dense(2)
    x = normal(5, 3)
    for _ in range(2):
        outputs = make_parallel(layer, 2)(x)
        assert len(layer.variables) == 2
        assert_same(outputs, layer(x))


def test_embeddings():
    layer = keras.layers.Embedding(10, 3)
    layer.build()
    ids = np.array([[1, 2], [2, 2], [9, 0]])
    results = []
    for fn in (layer, make_parallel(layer, 2)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(fn(ids) ** 2)
        gradient = tape.gradient(loss, layer.trainable_variables[0].value)
        results.append(tf.convert_to_tensor(gradient))
    assert_same(results[1], results[0])


def test_tensors_that_are_given_are_computed_at_once():
    x = normal(3, 4)
    assert_same(make_parallel(predict, 2, x=x), predict(x))
    assert_same(
        make_parallel(predict, devices=[device_name(3), device_name(1)], x=x),
        predict(x),
    )


class Regression(keras.Model):
    """Trains with its own step, through `parallel`."""

    def __init__(self, num_replicas):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")
        self.parallel = (
            make_parallel(self.dense, num_replicas)
            if num_replicas
            else self.dense
        )

    def call(self, x):
        return self.parallel(x)


@pytest.mark.slow
def test_keras_train_step_ends_with_the_same_weights():
    x, y = normal(11, 3), normal(11, 1)
    weights = []
    for num_replicas in (0, 3):
        model = Regression(num_replicas)
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        # 11 rows in batches of 4: the last has 3.
        model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    assert_same(weights[1], weights[0])


@pytest.mark.parametrize(
    "fn, inputs",
    [
        (tf.reduce_sum, [normal(4, 2)]),
        (lambda x: {"loss": (x, x[:1])}, [normal(4, 2)]),
        (lambda x: tf.boolean_mask(x, x > 0), [np.array([1.0, 0.0, 1.0])]),
        (lambda x, y: (x, tf.sort(y, 0)), [normal(4, 2), normal(3, 2)]),
        (lambda x: x + 1, [1.0]),
        (lambda: tf.constant(1), []),
    ],
)
def test_functions_that_are_not_row_by_row(fn, inputs):
    expected = fn(*map(tf.constant, inputs))
    assert_same(make_parallel(fn, 3)(*inputs), expected)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(fn=predict, num_replicas=99), "num_replicas=99"),
        (dict(fn=predict, devices=["GPU:7"]), "GPU:7"),
        (dict(fn=normal(2, 2)), "partition needs a function"),
    ],
)
def test_devices_and_functions_that_are_not_there(arguments, message):
    with pytest.raises(InputError, match=message):
        make_parallel(**arguments)


def test_errors_of_the_function_stay_what_they_are():
    def fn(x):
        tf.debugging.assert_positive(x, "mine")
        return x

    with pytest.raises(tf.errors.InvalidArgumentError, match="mine"):
        make_parallel(fn, 2)(np.array([1.0, -1.0]))


def test_unknown_rows_that_differ_are_told_when_it_runs():
    parallel = make_parallel(lambda x, y: x + y, 2)
    for rows in (3, 4):
        parallel(normal(rows, 2), normal(rows, 2))
    with pytest.raises(tf.errors.InvalidArgumentError, match="row by row"):
        parallel(normal(4, 2), normal(3, 2))


@pytest.mark.parametrize("in_graph", [True, False])
def test_forward_and_backward_run_on_every_device(in_graph, tmp_path):
    parallel = make_parallel(lambda x: tf.tanh(tf.matmul(x, W)), 3)

    def step():
        with tf.GradientTape() as tape:
            y = parallel(tf.ones((6, 4)))
        return tape.gradient(y, W)

    step = tf.function(step) if in_graph else step
    placed = placement(step, tmp_path)
    for kind in ("Tanh", "TanhGrad"):
        assert placed[kind] == {device_name(0), device_name(1), device_name(2)}


def placement(step, folder):
    """Types of the operations that `step` ran, and the devices of each."""
    writer = tf.summary.create_file_writer(str(folder))
    tf.summary.trace_on(graph=True)
    step()
    with writer.as_default():
        tf.summary.trace_export("step", step=0)
    writer.close()
    placed = collections.defaultdict(set)
    for record in tf.data.TFRecordDataset([str(*folder.iterdir())]):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            (text,) = value.tensor.string_val
            metadata = tf.compat.v1.RunMetadata.FromString(text)
            for graph in metadata.partition_graphs:
                for node in graph.node:
                    placed[node.op].add(node.device.rpartition("device:")[2])
    return placed
