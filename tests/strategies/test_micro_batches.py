"""Micro-batches change memory, and nothing that comes out."""

import functools
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import kerasmgpu
from benchmarks.exactness import harness
from benchmarks.exactness.registry import cases
from kerasmgpu.errors import InputError
from tests.devices import device_names

CASES = cases("parity")

EXACT = [
    # (case, replicas, micro-batches)
    ("uneven last batch", 1, 2),
    ("uneven last batch", 4, 3),
    ("first batch of one row", 2, 2),
    ("masked loss per token", 2, 2),
    ("global clipnorm", 2, 3),
    ("loss scale with overflow on one replica", 1, 3),
    ("batch normalisation", 2, 3),
    ("batch normalisation with a mask", 2, 2),
    ("dropout", 2, 2),
    ("own train step with a mean", 1, 2),
    ("metric that is no sum", 2, 2),
    ("several inputs and outputs", 2, 2),
    ("gradient accumulation", 1, 2),
    ("sparse tensors", 2, 2),
    ("steps per execution", 1, 2),
]
QUICK = {
    ("batch normalisation with a mask", 2, 2),
    ("dropout", 2, 2),
    ("metric that is no sum", 2, 2),
}
one_device = functools.cache(lambda name: harness.run(CASES[name]))
"""Function that returns a case's run on one device, in double precision."""


def strategy_of(replicas, micro_batches):
    names = device_names(replicas)
    return kerasmgpu.MirroredStrategy(names, micro_batches=micro_batches)


@pytest.fixture
def in_double_precision():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "name, replicas, micro_batches",
    [
        pytest.param(*run, marks=() if run in QUICK else pytest.mark.nightly)
        for run in EXACT
    ],
)
def test_results_do_not_depend_on_micro_batches(
    name, replicas, micro_batches, in_double_precision
):
    one = one_device(name)
    many = harness.run(CASES[name], strategy_of(replicas, micro_batches))
    for what, distance in harness.distances(one, many).items():
        # Data and some layers of the cases are of 32 bits.
        limit = 1e-9 if what == "weights" else 1e-6
        assert distance <= limit, f"{what}: {distance:.1e}"
    assert many.spread == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "micro_batches", [2, pytest.param("auto", marks=pytest.mark.nightly)]
)
def test_the_optimizer_may_be_sharded(micro_batches, in_double_precision):
    name = "global clipnorm"
    strategy = kerasmgpu.MirroredStrategy(
        device_names(2),
        shard="optimizer",
        min_shard_bytes=0,
        micro_batches=micro_batches,
    )
    one, many = one_device(name), harness.run(CASES[name], strategy)
    assert harness.weight_distance(one, many) <= 1e-9


def test_partition_in_the_scope_uses_micro_batches():
    strategy = strategy_of(2, 3)
    with strategy.scope():
        w = tf.Variable([[2.0]])

        @kerasmgpu.partition
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ w) ** 2)
            w.assign_sub(0.1 * tape.gradient(loss, w))
            return loss

    x = np.arange(7, dtype="float32")[:, None]
    np.testing.assert_allclose(step(x), np.mean((2 * x) ** 2), rtol=1e-6)
    gradient = np.mean(2 * x * 2 * x)
    np.testing.assert_allclose(
        w.read_value(), [[2 - 0.1 * gradient]], rtol=1e-5
    )


def test_micro_batches_look_up_rows_of_their_own():
    """In a variable that isn't read whole before."""
    rows = np.array([3, 1, 4, 1, 5, 9, 2])
    with strategy_of(2, 2).scope():
        table = tf.Variable(10.0 * np.arange(10))

        @kerasmgpu.partition
        def look_up(rows):
            total = tf.cast(tf.reduce_sum(rows), table.dtype)
            table.assign_add(tf.fill([10], total))
            return tf.gather(table, rows), tf.gather_nd(table, rows[:, None])

        found = look_up(rows)
    for values in found:
        np.testing.assert_array_equal(values, 10.0 * rows + rows.sum())


def test_loops_look_up_parts_of_a_divided_table():
    rows = np.array([3, 1, 4, 1, 5])
    numbers = np.arange(40.0).reshape(10, 4)
    strategy = kerasmgpu.MirroredStrategy(
        device_names(2),
        micro_batches=2,
        shard=lambda variable: 1,
        min_shard_bytes=0,
    )
    with strategy.scope():
        table = tf.Variable(numbers)

        @kerasmgpu.partition
        def look_up(rows, others):
            def one(pair):
                return tf.gather(table, pair[0]) + pair[1]

            vector = tf.TensorSpec([4], tf.float64)
            return tf.map_fn(one, (rows, others), fn_output_signature=vector)

        found = look_up(rows, numbers[:5])
    np.testing.assert_array_equal(found, numbers[rows] + numbers[:5])


def test_class_weights_and_a_schedule():
    random = np.random.default_rng(0)
    x = random.normal(size=(29, 4))
    y = random.integers(0, 2, 29)

    def trained(strategy):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
            rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(
                keras.optimizers.Adam(rate), loss, metrics=["accuracy"]
            )
        history = model.fit(
            x,
            y,
            batch_size=12,
            epochs=2,
            verbose=0,
            class_weight={0: 1.0, 1: 3.0},
        )
        return history.history["loss"], *model.get_weights()

    for one, many in zip(
        trained(strategy_of(1, 1)), trained(strategy_of(2, 2))
    ):
        np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many", True, None])
def test_wrong_numbers_of_micro_batches(wrong):
    with pytest.raises(InputError, match="micro_batches"):
        strategy_of(1, wrong)


def test_moments_of_a_replica_need_all_of_its_rows():
    with pytest.raises(InputError, match="per_replica"):
        kerasmgpu.MirroredStrategy(
            device_names(1), batch_norm="per_replica", micro_batches=2
        )


# Out of memory ---------------------------------------------------------------


class RunsOut(layers.Layer):
    """Fails as an allocation does, as many times as it is told."""

    times = 0

    def call(self, x):
        def checked(number):
            if self.times:
                self.times -= 1
                raise MemoryError("no memory")
            return number

        zero = tf.numpy_function(
            checked, [tf.reduce_mean(x)], tf.float32, stateful=False
        )
        zero.set_shape([])
        return x + 0 * tf.stop_gradient(zero)


def fitted(strategy, times, **compile_args):
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(22, 3)), random.normal(size=(22, 1))
    with strategy.scope():
        layer = RunsOut()
        model = keras.Sequential(
            [
                keras.Input((3,)),
                layers.Dense(4),
                layers.BatchNormalization(),
                layer,
                layers.Dense(1),
            ]
        )
        model.compile("sgd", "mse", metrics=["mae"], **compile_args)
    layer.times = times
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    assert layer.times == 0
    return [history.history["loss"], history.history["mae"]] + (
        model.get_weights()
    )


@pytest.fixture(scope="module")
def expected():
    return fitted(strategy_of(2, 1), 0)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("compile_args", [{}, {"steps_per_execution": 2}])
def test_a_step_that_ran_out_of_memory_runs_again(
    expected, compile_args, caplog
):
    with caplog.at_level("WARNING"):
        found = fitted(strategy_of(2, "auto"), 2, **compile_args)
    for one, many in zip(expected, found):
        np.testing.assert_allclose(one, many, rtol=1e-5, atol=1e-6)
    texts = [record.getMessage() for record in caplog.records]
    said = [text for text in texts if "out of memory" in text]
    assert len(said) == 2
    assert "one part; it goes on in 2" in said[0]


@pytest.mark.slow
def test_a_fixed_number_of_micro_batches_runs_out_of_memory():
    with pytest.raises(tf.errors.ResourceExhaustedError):
        fitted(strategy_of(1, 2), 1)


def test_what_can_not_be_undone_is_not_run_again():
    strategy = strategy_of(1, "auto")
    with strategy.scope():
        generator = tf.random.Generator.from_seed(1)

        @kerasmgpu.partition
        def step(x):
            noisy = x + generator.normal([])
            fails = tf.numpy_function(_fail, [noisy], tf.float32, False)
            return tf.reduce_sum(fails)

        with pytest.raises(InputError, match="set micro_batches=2"):
            step(np.ones([4], "float32"))


def _fail(x):
    raise MemoryError("no memory")


# Memory ----------------------------------------------------------------------

_PROGRAM = """
import numpy as np, tensorflow as tf, keras, kerasmgpu

def figure(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1]) / 1024

x = np.ones([4096, 256], "float32")
data = tf.data.Dataset.from_tensors((x, x)).repeat()
# What needs less comes first: a process has one peak.
for micro_batches in (4, 1):
    strategy = kerasmgpu.MirroredStrategy(["CPU:0"], micro_batches=micro_batches)
    with strategy.scope():
        inner = [keras.layers.Dense(256, "relu") for _ in range(40)]
        model = keras.Sequential([keras.Input((256,)), *inner])
        model.compile("sgd", "mse")
    before = figure("VmRSS")
    model.fit(data, steps_per_epoch=2, verbose=0)
    print(f"grown by {figure('VmHWM') - before:.0f} MiB")
"""


def _grown():
    """Growth of a process that trains with activations of 160 MiB, in MiB.

    In four micro-batches, and in one.
    """
    # oneDNN's allocator and glibc's arenas return no memory to the system.
    environ = {
        **os.environ,
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "MALLOC_MMAP_THRESHOLD_": "262144",
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return map(int, re.findall(r"grown by (\d+) MiB", done.stdout))


@pytest.mark.slow
def test_memory_falls_with_the_number_of_micro_batches():
    in_four, in_one = _grown()
    # 160 MiB of activations, and about 50 MiB that don't depend on the rows.
    assert in_four < 0.6 * in_one, (in_four, in_one)


@pytest.mark.parametrize("rows, batch_size", [(8, 32), (40, 5)])
@pytest.mark.parametrize("kind", [np.asarray, tf.data.Dataset])
def test_more_micro_batches_than_rows_are_refused(rows, batch_size, kind):
    x, y = np.ones((rows, 3), "float32"), np.ones((rows, 1), "float32")
    data = {"x": x, "y": y, "batch_size": batch_size}
    if kind is tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        data = {"x": dataset.batch(min(rows, batch_size)).prefetch(1)}
    with strategy_of(2, 9).scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
        model.compile("sgd", "mse")
    with pytest.raises(InputError, match="there can't be more of them") as told:
        model.fit(**data, verbose=0)
    batch = min(rows, batch_size)
    assert f"micro_batches=9 for batches of {batch} rows" in str(told.value)
    assert model.predict(x[:1], verbose=0).shape == (1, 1)  # No training.


def test_as_many_micro_batches_as_rows():
    with strategy_of(2, 4).scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((6, 3), "float32")
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
    model.evaluate(x, x[:, :1], batch_size=1, verbose=0)
