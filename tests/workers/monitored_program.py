"""A case of `shared_program`: the callbacks of a long run."""

import numpy as np

import kerasmgpu

ROWS = np.random.default_rng(0).normal(size=(44, 2)).astype("float32")


def train(strategy, folder):
    """Trains three epochs of six steps."""
    import keras

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse", jit_compile=False)
    callbacks = kerasmgpu.callbacks.default(
        folder,
        progress={"one_replica": 1e4},
        monitors={
            "every": 4,
            "norms": "variables",
            "profile_steps": (7, 9),
        },
    )
    model.fit(
        ROWS,
        ROWS,
        batch_size=8,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return model.get_weights()


def run(strategy, _, folder):
    """Trains in a job."""
    return train(strategy(), folder)
