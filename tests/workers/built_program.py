"""A case of `shared_program`: models that are built, and quantized, in parts."""

import numpy as np


def network(dtype="float32"):
    """A model whose initial values follow from the seed of its process."""
    import keras

    return keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(9, "relu", dtype=dtype),
            # A program's own initializer makes the whole value.
            keras.layers.Dense(
                9,
                kernel_initializer=lambda shape, dtype: keras.random.normal(
                    shape, dtype=dtype
                ),
                dtype=dtype,
            ),
            keras.layers.Dense(4, kernel_initializer="he_normal", dtype=dtype),
        ]
    )


def run(strategy, name, files):
    """Builds models, with another seed on each worker.

    Returns a dictionary of the models' values, as this worker reads them.
    """
    del name, files
    import keras

    strategy = strategy(shard="weights", min_shard_bytes=0)
    keras.utils.set_random_seed(1 + strategy.cluster_resolver.task_id)
    outcomes, x = {}, np.ones([4, 6], "float32")
    with strategy.scope():
        model, narrow = network(), network("bfloat16")
    outcomes["weights"] = model.get_weights()
    outcomes["narrow"] = [one.astype("float32") for one in narrow.get_weights()]
    with strategy.scope():
        model.quantize("int8")
    outcomes["quantized"] = model.get_weights()
    outcomes["predicted"] = model.predict(x, verbose=0)
    return outcomes
