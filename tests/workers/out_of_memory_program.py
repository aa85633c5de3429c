"""One worker of a job in which worker 1 runs out of memory twice.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.out_of_memory_program OUTPUT_DIR

Each worker writes `replicated-<index>.npz`, and `sharded-<index>.npz` of a model
whose variables are sharded: the weights and losses of a training
with `micro_batches="auto"`, of one that nothing interrupts, and of one in three
micro-batches; and the error of one that one row at a time is too much for, behind
which the job goes on.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu
from kerasmgpu import cluster

TIMES = 2
"""How often worker 1 runs out of memory."""


def main(output_dir):
    """Trains five times each, and writes what came out."""
    index = cluster.from_environment().index
    strategy = kerasmgpu.strategy(
        shard=lambda variable: strategy.shard is not None, min_shard_bytes=0
    )
    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    class RunsOut(layers.Layer):
        """Fails as an allocation does, as many times as it is told."""

        times = 0

        def call(self, x):
            def checked(number):
                if self.times:
                    self.times -= 1
                    raise MemoryError("no memory")
                return number

            mean = tf.reduce_mean(x)
            zero = tf.numpy_function(
                checked, [mean], tf.float32, stateful=False
            )
            zero.set_shape([])
            return x + 0 * tf.stop_gradient(zero)

    def trained(times):
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
            model.compile("sgd", "mse")
        layer.times = times
        try:
            history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        except tf.errors.ResourceExhaustedError as error:
            return [np.asarray(error.message)]
        assert layer.times == 0
        return [np.asarray(history.history["loss"]), *model.get_weights()]

    for name_of_file, shard in (("replicated", None), ("sharded", "weights")):
        strategy.shard = shard  # By name, as predictions of memory need it.
        found = {}
        for name, times in (
            ("plain", 0),
            ("again", TIMES * (index == 1)),
            ("error", 1000 * (index == 1)),
            ("behind", 0),
            ("parts", 0),
        ):
            strategy.micro_batches = 3 if name == "parts" else "auto"
            for number, array in enumerate(trained(times)):
                found[f"{name} {number}"] = array
        path = pathlib.Path(output_dir) / f"{name_of_file}-{index}.npz"
        np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
