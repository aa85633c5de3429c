"""Cases of `shared_program`: tables that are larger than what a worker holds.

A case is an optimizer, the number of micro-batches, and perhaps `jit` for XLA
and a type, by default float64: `adam-2-jit`, `sgd-1-bfloat16`.
"""

ROWS, TOKENS, VOCABULARY = 24, 3, 11


def batches():
    """Batches in which replicas own some, all or none of the wanted rows."""
    import numpy as np

    rng = np.random.default_rng(0)
    kinds = [
        rng.integers(0, VOCABULARY, (ROWS, TOKENS)),
        np.zeros((ROWS, TOKENS)),
        np.full((ROWS, TOKENS), VOCABULARY - 1),
        rng.integers(0, VOCABULARY, (7, TOKENS)),
        rng.integers(3, 5, (2, TOKENS)),
    ]
    for ids in kinds * 2:
        ids = ids.astype("int32")
        yield ids, ids.sum(1, keepdims=True) / 9.0


def train(scope, setting):
    """Losses, weights and predictions of a model with a table."""
    import keras

    keras.utils.set_random_seed(3)
    before = keras.config.floatx(), keras.config.dtype_policy()
    optimizer, _, *others = setting.split("-")
    dtype = "bfloat16" if "bfloat16" in others else "float64"
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    with scope:
        model = keras.Sequential(
            [
                keras.Input((TOKENS,), dtype="int32"),
                keras.layers.Embedding(VOCABULARY, 5),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        optimizer = keras.optimizers.get(optimizer)
        optimizer.learning_rate = 0.1
        model.compile(optimizer, "mse", jit_compile="jit" in others)
    losses = [float(model.train_on_batch(*batch)) for batch in batches()]
    ids, _ = next(batches())
    outcome = [losses, *model.get_weights(), model.predict(ids, verbose=0)]
    keras.config.set_floatx(before[0])
    keras.config.set_dtype_policy(before[1])
    return outcome


def run(strategy, setting, files):
    """Losses, weights and predictions under a setting."""
    strategy = strategy(
        shard="embeddings",
        min_shard_bytes=0,
        micro_batches=int(setting.split("-")[1]),
    )
    return train(strategy.scope(), setting)
