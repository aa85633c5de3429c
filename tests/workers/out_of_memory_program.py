"""One worker of a job in which worker 1 runs out of memory twice.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.out_of_memory_program OUTPUT_DIR

For each of three strategies, the third of which is the first again, each worker
writes `<number>-worker-<index>.npz`: the weights and losses of a training with
`micro_batches="auto"`, of one that nothing interrupts, and of one in three
micro-batches; and the error of one that one row at a time is too much for, behind
which the job goes on.
"""

import dataclasses
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu
from kerasmgpu import cluster

TIMES = 2
"""How often worker 1 runs out of memory."""


def main(output_dir):
    """Trains five times with each strategy, and writes what came out."""
    index = cluster.from_environment().index
    replicated, sharded = (
        kerasmgpu.strategy(shard=shard, min_shard_bytes=0)
        for shard in (None, "weights")
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

    def trained(strategy, times):
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

    for number, strategy in enumerate((replicated, sharded, replicated)):
        found = {}
        for name, times in (
            ("plain", 0),
            ("again", TIMES * (index == 1)),
            ("error", 1000 * (index == 1)),
            ("behind", 0),
            ("parts", 0),
        ):
            strategy.settings = dataclasses.replace(
                strategy.settings,
                micro_batches=3 if name == "parts" else "auto",
            )
            for place, array in enumerate(trained(strategy, times)):
                found[f"{name} {place}"] = array
        path = pathlib.Path(output_dir) / f"{number}-worker-{index}.npz"
        np.savez(path, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
