"""A case of `shared_program`: steps that `Audit` compares with one device."""

import numpy as np

import kerasmgpu
from kerasmgpu.callbacks import audit

ROWS = np.random.default_rng(0).normal(size=(29, 6)).astype("float32")


def train(strategy, *callbacks):
    """Trains two epochs; returns all weights."""
    import keras

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "relu"),
                keras.layers.Dropout(0.3),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    fit = {"batch_size": 8, "epochs": 2, "verbose": 0}
    model.fit(ROWS, ROWS[:, :1], callbacks=list(callbacks), **fit)
    return model.get_weights()


def run(strategy, how, folder):
    """Trains with an audit of each step, and without."""
    settings = {}
    if how == "sharded":
        settings = {"shard": "weights", "min_shard_bytes": 0}
    audit.FIRST, audit.SHARE = 1, float("inf")
    own = strategy(**settings)
    audited = kerasmgpu.callbacks.Audit(1, folder / "evidence.json")
    pair = train(own, audited), train(own)
    return audited.findings, pair
