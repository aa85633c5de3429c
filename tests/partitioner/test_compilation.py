"""XLA compilation of partitioned functions."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering import xla_first_run
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.devices import device_name
from tests.strategies.sharded import (
    mirrored,
    pretended_devices,
    pretended_worker,
)

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
DEVICES = [
    f"/job:localhost/replica:0/task:0/device:{device_name(n)}" for n in range(3)
]
REPLICAS = Replicas(Mesh.on(DEVICES, HOST))


def require_the_same(function, *inputs):
    """Requires equal results of one device and three replicas, under XLA."""
    expected = tf.function(function, jit_compile=True)(*inputs)
    partitioned = Partitioned(function, REPLICAS, jit_compile=True)
    for one, many in zip(
        tf.nest.flatten(expected), tf.nest.flatten(partitioned(*inputs))
    ):
        np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-5)


def loop(body, value):
    """Applies `body` to a value three times in a loop."""
    return tf.while_loop(
        lambda index, _: index < 3, body, (0, value), maximum_iterations=3
    )[1]


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "draw",
    [
        tf.random.stateless_normal,
        tf.random.stateless_truncated_normal,
        tf.random.stateless_uniform,
    ],
)
def test_replicas_draw_what_xla_draws(draw):
    """XLA draws other numbers than TensorFlow's kernels do."""

    def step(rows):
        return rows + draw(tf.shape(rows), seed=(1, 2))

    require_the_same(step, tf.zeros([7, 5]))
    require_the_same(step, tf.zeros([2, 3, 4]))


def test_a_convolution_on_its_own_is_compiled():
    """Other kernels give it a wrong shape where a replica has no rows."""

    require_the_same(
        lambda images, kernel: tf.nn.conv2d(images, kernel, 1, "SAME"),
        tf.random.stateless_normal([2, 6, 6, 3], seed=(1, 2)),
        tf.random.stateless_normal([3, 3, 3, 4], seed=(3, 4)),
    )


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirrored_borders_of_empty_shares(mode):
    """XLA refuses to mirror borders of no rows."""

    def step(images):
        with tf.GradientTape() as tape:
            tape.watch(images)
            padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], mode)
            loss = tf.reduce_sum(padded * padded)
        return padded, tape.gradient(loss, images)

    require_the_same(
        step, tf.random.stateless_normal([2, 4, 4, 3], seed=(1, 2))
    )


@pytest.mark.slow
def test_a_draw_beside_the_lists_of_a_loop_of_all():
    """The gradient's lists can't be compiled, but the draw can."""

    def step(rows, weights):
        def body(index, rows):
            rows = tf.sin(rows @ weights)
            return index + 1, rows - tf.reduce_mean(rows, 0)

        with tf.GradientTape() as tape:
            tape.watch(weights)
            drawn = tf.random.stateless_uniform(tf.shape(rows), seed=(1, 2))
            loss = tf.reduce_sum(loop(body, rows) * drawn)
        return loss, tape.gradient(loss, weights)

    require_the_same(
        step,
        tf.random.stateless_normal([7, 4], seed=(1, 2)),
        tf.random.stateless_normal([4, 4], seed=(3, 4)),
    )


def test_gradients_of_a_loop_of_all():
    """A constant of the loop's gradient waits for an earlier XLA cluster."""

    def step(rows, weights):
        def body(index, rows):
            rows = tf.sin(rows @ weights)
            return index + 1, rows - tf.reduce_mean(rows, 0)

        with tf.GradientTape() as tape:
            tape.watch(weights)
            rows = loop(body, rows)
            loss = tf.reduce_sum(rows**2)
        return loss, tape.gradient(loss, weights)

    require_the_same(
        step,
        tf.random.stateless_normal([7, 4], seed=(1, 2)),
        tf.random.stateless_normal([4, 4], seed=(3, 4)),
    )


def test_a_gradient_of_a_convolution_in_a_loop_on_no_rows():
    """Its sizes come from a list, which loses their static shape."""

    def step(images, filters):
        def body(index, images):
            images = tf.nn.conv2d(images, filters, 1, "SAME")
            return index + 1, images - tf.reduce_mean(images, 0)

        with tf.GradientTape() as tape:
            tape.watch((images, filters))
            loss = tf.reduce_sum(loop(body, images) ** 2)
        return loss, tape.gradient(loss, (images, filters))

    images = tf.random.stateless_normal([2, 4, 4, 3], seed=(1, 2))
    filters = tf.random.stateless_normal([3, 3, 3, 3], seed=(3, 4))
    expected = tf.function(step)(images, filters)
    partitioned = Partitioned(step, REPLICAS)
    for one, many in zip(
        tf.nest.flatten(expected),
        tf.nest.flatten(partitioned(images, filters)),
    ):
        np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-4)


def compiled(partitioned, *specifications):
    """Names of the functions that XLA compiles, one for each cluster."""
    written = partitioned.program(specifications).written()
    return [
        cluster.function
        for program in written.lowered.programs()
        for cluster in program.clusters
    ]


def block(strategy):
    """A training step of a block of a transformer, whose loss has a penalty."""
    with strategy.scope():
        kernels = [tf.Variable(tf.ones([4, 4]) / n) for n in range(1, 6)]

    def step(x):
        with tf.GradientTape() as tape:
            query, key, value = (x @ kernel for kernel in kernels[:3])
            scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True))
            x = tf.math.l2_normalize(x + scores @ value, -1)
            x = x + tf.nn.gelu(x @ kernels[3]) @ kernels[4]
            penalty = sum(tf.nn.l2_loss(kernel) for kernel in kernels)
            loss = tf.reduce_mean(tf.square(x)) + 1e-3 * penalty
        gradients = tape.gradient(loss, kernels)
        scale = tf.linalg.global_norm(gradients)
        for kernel, gradient in zip(kernels, gradients):
            kernel.assign_sub(0.1 * gradient / scale)
        return loss

    return strategy.partitioned(step, True, "step")


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("shares_memory", [True, False])
def test_replicas_have_the_same_clusters(shares_memory):
    """Their number doesn't grow with that of the replicas."""

    def kinds(rows, num_replicas):
        with pretended_devices(shares_memory):
            partitioned = block(mirrored(num_replicas, None))
            names = compiled(partitioned, tf.TensorSpec([rows, 3, 4]))
        return len(set(names))

    for rows in (None, 16, 13):
        assert kinds(rows, 1) == 1
        number = kinds(rows, 2)
        assert number <= (5 if shares_memory else 8)
        assert [kinds(rows, count) for count in (4, 8)] == [number] * 2


def test_workers_have_the_same_clusters():
    found = []
    for worker in range(2):
        with pretended_worker(worker, 2):
            partitioned = block(mirrored(2, None))
            names = compiled(partitioned, tf.TensorSpec([16, 3, 4]))
        found.append(set(names))
    assert found[0] == found[1]


def test_programs_share_functions(replicas):
    """TensorFlow counts who has added a function."""
    x = tf.random.stateless_normal([6, 3, 4], seed=(1, 2))
    strategy = mirrored(2, None)
    first, second = block(strategy), block(strategy)
    names = [
        set(compiled(one, tf.TensorSpec(x.shape))) for one in (first, second)
    ]
    assert names[0] == names[1]
    first(x)
    del first
    gc.collect()
    second(x)


def test_an_error_in_a_cluster_has_the_users_line():
    def step(rows, shape):
        return tf.reshape(tf.sin(rows) * 2.0, shape)

    partitioned = Partitioned(step, REPLICAS, jit_compile=True)
    place = "(?s)replica_0/Reshape defined at .* in step\n"
    with pytest.raises(tf.errors.InvalidArgumentError, match=place):
        partitioned(tf.zeros([6, 2]), tf.constant([5, -1]))


def test_the_first_run_compiles_on_one_device_after_the_other():
    x = tf.random.stateless_normal([6, 3, 4], seed=(1, 2))

    def step(x):
        return tf.reduce_sum(tf.sin(x) * 2.0, 0)

    partitioned = Partitioned(
        step, REPLICAS, jit_compile=True, before_compiling=lambda *_: {}
    )
    written = partitioned.program((tf.TensorSpec(x.shape),)).written()
    calls = {
        node.name: [one for one in node.input if "^compiled" in one]
        for node in written.first.library[0].node_def
        if node.name.startswith("compiled")
    }
    assert list(calls.values()) == [
        [],
        ["^compiled/0_0"],
        ["^compiled/0_1"],
    ]
    first, second = partitioned(x), partitioned(x)
    assert written.first is None
    np.testing.assert_array_equal(first, second)


def test_what_another_process_compiles_is_waited_for():
    x = tf.random.stateless_normal([6, 3, 4], seed=(1, 2))
    queues = {}

    def before_compiling(functions, levels):
        queues.update(
            (name, xla_first_run.queue_name(name)) for name in functions
        )
        return queues

    partitioned = Partitioned(
        lambda x: tf.reduce_sum(tf.sin(x) * 2.0, 0),
        REPLICAS,
        jit_compile=True,
        before_compiling=before_compiling,
    )
    found = []
    thread = threading.Thread(target=lambda: found.append(partitioned(x)))
    thread.start()
    thread.join(1.0)
    assert queues and not found
    for queue in queues.values():
        xla_first_run.release(queue, HOST)
    thread.join(30.0)
    np.testing.assert_array_equal(partitioned(x), found[0])


def test_a_random_state_is_that_of_one_function():
    partitioned = Partitioned(
        lambda x: tf.sin(x) * 2.0 + tf.random.normal(tf.shape(x)),
        REPLICAS,
        jit_compile=True,
        before_compiling=lambda *_: {},
    )
    written = partitioned.program((tf.TensorSpec([6, 2]),)).written()
    assert written.lowered.clusters and written.first is None
