"""Programs for `find_batch_size` that run out of memory in several ways."""

import os
import resource
import signal
import time

import keras
import numpy as np
import tensorflow as tf


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(1000, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def net(*layers):
    model = keras.Sequential(
        [keras.Input((4,)), *layers, keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


def sound():
    return net()


class RunsOut(keras.layers.Layer):
    """Out of memory when the global batch has more than `most_rows` rows.

    The partitioner gathers the rows of all replicas for a Python function.
    """

    most_rows = 100

    def call(self, inputs):
        def check(x):
            if len(x) > self.most_rows:
                raise MemoryError("no more")
            return x

        checked = tf.numpy_function(check, [inputs], inputs.dtype)
        return tf.ensure_shape(checked, inputs.shape)


class IsKilled(keras.layers.Layer):
    """Kills the process for more than 300 rows, or if it has run smaller batches."""

    fewest = float("inf")

    def call(self, inputs):
        def check(x):
            self.fewest = min(self.fewest, len(x))
            if len(x) > max(self.fewest, 100) or len(x) > 300:
                os.kill(os.getpid(), signal.SIGKILL)
            return x

        checked = tf.numpy_function(check, [inputs], inputs.dtype)
        return tf.ensure_shape(checked, inputs.shape)


def runs_out():
    return net(RunsOut())


def is_killed():
    return net(IsKilled())


def not_even_one():
    layer = RunsOut()
    layer.most_rows = 0
    return net(layer)


def limited_memory():
    """This process gets 1 GiB more than it has."""
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # 4 MB a row, for the layer's outputs and their gradients each.
    return net(keras.layers.Dense(1_000_000, use_bias=False))


def broken():
    return net(keras.layers.Reshape((5,)))


def batches():
    """A data set of two batches of 20 and 10 rows."""
    return tf.data.Dataset.from_tensor_slices(data()).take(30).batch(20)


def waits():
    """Never returns; leaves this process's number in a file."""
    path = os.environ["WAITS"]
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path)
    time.sleep(600)


def on_a_mesh():
    """Rows over two devices, columns of the first kernel over the others."""
    devices = keras.distribution.list_devices()
    shape = (2, len(devices) // 2)
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["up/kernel"] = (None, "model")
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
    )
    return net(keras.layers.Dense(8, "tanh", name="up"))
