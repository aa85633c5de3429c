"""A case of `shared_program`: data of several kinds, read by all workers.

The weight is 0 and stays so: the loss is the mean of the squared targets over
the rows that were used.
"""

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu.job import workers

TARGETS = [1.0 + 10 * i + np.arange(n) for i, n in enumerate((5, 9, 2))]
"""The targets in each of three files."""


def run(strategy, _, folder):
    """Returns the losses and predictions by the kind of data."""
    strategy = strategy()
    number = workers.index(strategy)
    folder = folder / str(number)
    folder.mkdir()
    for i, targets in enumerate(TARGETS):
        lines = "".join(f"{target}\n" for target in targets)
        (folder / f"{i}.txt").write_text(lines)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((1,)),
                keras.layers.Dense(1, kernel_initializer="zeros"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.0), "mse")

    def losses(dataset):
        fitted = model.fit(dataset, epochs=2, verbose=0).history["loss"]
        return [*fitted, model.evaluate(dataset, verbose=0)]

    files = sorted(map(str, folder.glob("*.txt")))
    by_files = rows_of(tf.data.TextLineDataset(files))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    results = {
        "files": losses(by_files),
        "files of known length": losses(
            by_files.apply(tf.data.experimental.assert_cardinality(4))
        ),
        "one file": losses(rows_of(tf.data.TextLineDataset(files[0]))),
        "files read by all": losses(by_files.with_options(options)),
        "distributed by hand": losses(
            strategy.experimental_distribute_dataset(by_files)
        ),
        "own shards": losses(
            strategy.distribute_datasets_from_function(
                lambda context: rows_of(
                    tf.data.TextLineDataset(files[:2]).shard(
                        context.num_input_pipelines, context.input_pipeline_id
                    )
                )
            )
        ),
    }
    model.set_weights([np.ones((1, 1)), np.zeros(1)])
    results["predictions"] = model.predict(by_files, verbose=0)[:, 0].tolist()

    def add(x):
        return tf.reduce_sum(x, 0) if number else tf.reduce_sum(x)

    try:
        with strategy.scope():
            kerasmgpu.partition(add)(np.ones((5, 3), "float32"))
    except kerasmgpu.InputError as error:
        results["other programs"] = str(error)
    return results


def rows_of(lines):
    """Batches of four of a data set of lines."""
    numbers = lines.map(lambda line: tf.strings.to_number(line)[None])
    return numbers.map(lambda number: (number, number)).batch(4)
