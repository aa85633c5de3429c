"""A worker that trains for long, and one of them comes to a given end."""

import os
import signal
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import kerasmgpu


def main(end):
    """Trains; worker 1 ends as `end` says after some epochs."""
    strategy = kerasmgpu.MultiWorkerMirroredStrategy(timeout_seconds=3)
    import keras

    class End(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            passes[0] += 1
            if is_last() and end != "error":
                os.kill(os.getpid(), getattr(signal, end))

    def is_last():
        return passes[0] > 2 and strategy.cluster_resolver.task_id == 1

    def rows():
        for _ in range(8):
            if is_last() and end == "error":
                raise OSError("worker 1 can't read its data")
            yield np.ones(3), np.ones(1)

    passes = [0]
    signature = tf.TensorSpec([3]), tf.TensorSpec([1])
    data = tf.data.Dataset.from_generator(rows, output_signature=signature)
    data = data.apply(tf.data.experimental.assert_cardinality(8)).batch(8)

    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(data, epochs=1_000_000, verbose=0, callbacks=[End()])


if __name__ == "__main__":
    main(sys.argv[1])
