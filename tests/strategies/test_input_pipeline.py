"""What feeds the replicas: one iterator, ahead of the step, nothing dense."""

import math
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks.timed_iterator import TimedIterator
from kerasmgpu.partitioner.rules.kinds import is_local
from kerasmgpu.strategies import input_speed
from kerasmgpu.strategies.input_speed import InputSpeed, compare_input

ROWS, COLUMNS, BATCH = 48, 6, 8


@pytest.fixture
def made(monkeypatch):
    """A list that gets an entry for every iterator of a distributed data set."""
    from tensorflow.python.distribute import input_lib

    entries = []

    def count(kind):
        original = kind.__iter__

        def counted(self):
            entries.append(self)
            return original(self)

        monkeypatch.setattr(kind, "__iter__", counted)

    count(input_lib.DistributedDatasetsFromFunction)
    count(input_lib.DistributedDataset)
    return entries


class Rows(keras.layers.Layer):
    """Passes its input on, and keeps the first column of every batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def call(self, inputs):
        def keep(values):
            self.seen.append(values.ravel().tolist())
            return values

        kept = tf.numpy_function(keep, [inputs[:, :1]], tf.float32)
        kept.set_shape((None, 1))
        return inputs + 0.0 * kept


def model_of_rows():
    rows = Rows()
    model = keras.Sequential(
        [keras.Input((COLUMNS,)), rows, keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    return model, rows


def arrays():
    x = np.zeros((ROWS, COLUMNS), "float32")
    x[:, 0] = np.arange(ROWS)
    return x, np.ones((ROWS, 1), "float32")


def shuffled(seeded_map=False):
    def noise(x, y):
        return x + tf.random.uniform([], seed=5), y

    dataset = tf.data.Dataset.from_tensor_slices(arrays()).shuffle(ROWS, seed=3)
    return (dataset.map(noise) if seeded_map else dataset).batch(BATCH)


def fit_arrays(model, epochs):
    x, y = arrays()
    keras.utils.set_random_seed(1)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0)


def fit_shuffled(model, epochs):
    keras.utils.set_random_seed(1)
    model.fit(shuffled(), epochs=epochs, shuffle=False, verbose=0)


def fit_seeded_map(model, epochs):
    keras.utils.set_random_seed(1)
    model.fit(shuffled(True), epochs=epochs, shuffle=False, verbose=0)


def rows_of_one_device(fit, epochs):
    model, rows = model_of_rows()
    fit(model, epochs)
    return rows.seen


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("fit", [fit_arrays, fit_seeded_map, fit_shuffled])
def test_an_iterator_per_epoch_gives_the_batches_of_one_device(
    fit, like_gpus, made
):
    wanted = rows_of_one_device(fit, epochs=3)
    with like_gpus(2).scope():
        model, rows = model_of_rows()
    fit(model, 3)
    assert len(made) == 3
    assert rows.seen == wanted


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("fit", [fit_shuffled, fit_arrays, fit_seeded_map])
def test_so_it_does_with_one_replica_on_a_gpu(fit, like_gpus, made):
    wanted = rows_of_one_device(fit, epochs=3)
    with like_gpus(1).scope():
        model, rows = model_of_rows()
    fit(model, 3)
    assert len(made) == 3
    assert rows.seen == wanted


def test_evaluating_makes_one_iterator(like_gpus, made):
    with like_gpus(2).scope():
        model, _ = model_of_rows()
    model.evaluate(shuffled(), verbose=0)
    assert len(made) == 1


@pytest.mark.parametrize("where", ["replicas", "like_gpus"])
def test_input_works_while_the_step_does(where, request):
    pause = 0.03

    def slowly(x):
        time.sleep(pause)
        return x

    class Slow(keras.layers.Layer):
        def call(self, inputs):
            context = tf.distribute.get_replica_context()
            # While the model is built there are no replicas; one is enough.
            if context is None or tf.get_static_value(
                context.replica_id_in_sync_group
            ):
                return inputs
            return tf.ensure_shape(
                tf.numpy_function(slowly, [inputs], tf.float32), inputs.shape
            )

    def slow_input(x, y):
        slow = tf.numpy_function(slowly, [x], tf.float32)
        return tf.ensure_shape(slow, (None, COLUMNS)), y

    make = request.getfixturevalue(where)
    with make(2).scope():
        model = keras.Sequential(
            [keras.Input((COLUMNS,)), Slow(), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse", jit_compile=False)
    x, y = arrays()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    logger = kerasmgpu.callbacks.ThroughputLogger()
    logs = model.fit(
        dataset.map(slow_input),
        epochs=2,
        shuffle=False,
        callbacks=[logger],
        verbose=0,
    ).history
    # One after the other they would take 2 pauses, 0.5 of it waiting.
    assert logs["step_seconds_median"][-1] < 1.6 * pause
    assert logs["input_wait_share"][-1] < 0.4


@pytest.mark.parametrize("sparse", [True, False])
def test_sparse_rows_reach_the_step_sparse(sparse, replicas):
    columns, rows = 50_000, 64
    scipy_sparse = pytest.importorskip("scipy.sparse")
    x = scipy_sparse.random(rows, columns, 1e-3, "csr", "float32", rng=1)
    with replicas(2).scope():
        model = keras.Sequential(
            [keras.Input((columns,), sparse=sparse), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse", jit_compile=False)
    model.fit(x, np.ones((rows, 1)), batch_size=16, verbose=0)
    (program,) = model.train_function.programs
    indices, values, shape, _ = program.trace.leaves
    assert (indices.dtype, values.dtype) == (tf.int64, tf.float32)
    assert [len(tensor.static) for tensor in (indices, values, shape)] == [
        2,
        1,
        1,
    ]
    products = {
        node: plan
        for node, plan in program.plans[0].nodes.items()
        if node.type in ("MatMul", "SegmentSum")
    }
    assert products
    for node, plan in products.items():
        assert any(map(is_local, plan.gives)), node


def test_compare_input_tells_what_is_slow_and_leaves_the_model(replicas):
    strategy = replicas(2)
    with strategy.scope():
        model, _ = model_of_rows()

    def slowly(x):
        time.sleep(0.05)
        return x

    def slow(x, y):
        x = tf.numpy_function(slowly, [x], tf.float32)
        return tf.ensure_shape(x, (None, COLUMNS)), y

    before = [variable.numpy() for variable in model.variables]
    speed = compare_input(model, shuffled().map(slow).repeat(), steps=10)
    # A batch per 50 ms, at most.
    assert 0 < speed.input_examples_per_second <= 1.1 * BATCH / 0.05
    assert speed.ratio < 1 and "input-bound" in str(speed)
    for variable, value in zip(model.variables, before):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert int(model.optimizer.iterations.numpy()) == 0


def test_a_ratio_above_one_is_compute_bound():
    speed = InputSpeed(300.0, 200.0)
    assert speed.ratio == 1.5
    assert str(speed).endswith("compute-bound (1.50 times)")


@pytest.mark.parametrize(
    "data, message",
    [
        (lambda: arrays(), "Received: dataset of type tuple"),
        (lambda: shuffled().take(0), "a dataset without a batch"),
    ],
)
def test_compare_input_refuses(data, message, replicas):
    with replicas(2).scope():
        model, _ = model_of_rows()
    with pytest.raises(kerasmgpu.InputError, match=message):
        compare_input(model, data())


def test_compare_input_needs_a_step_that_is_not_traced():
    class Traced:
        def fit(self, *_, **__):
            self.history = {"examples_per_second": [math.nan] * 3}
            return self

    with pytest.raises(kerasmgpu.InputError, match="pass more steps"):
        input_speed._examples_per_second(Traced(), None)


def test_timed_iterators_are_known_by_value(replicas):
    from kerasmgpu.callbacks.timed_iterator import InputProbe

    probe = InputProbe(replicas(2))
    dataset = tf.data.Dataset.range(4)
    one, other = (
        tf.type_spec_from_value(probe.timed(iter(dataset))) for _ in "ab"
    )
    assert one == other and hash(one) == hash(other)
    elsewhere = InputProbe(replicas(2)).timed(iter(dataset))
    assert isinstance(elsewhere, TimedIterator)
    assert tf.type_spec_from_value(elsewhere) != one
