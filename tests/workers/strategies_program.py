"""A case of `shared_program`: a strategy for each of several models.

Each is trained, the first one again behind the others, as a loop over settings
does that makes the strategy in its function.
"""

import keras
import numpy as np

import kerasmgpu

X = np.random.default_rng(1).normal(size=(40, 64)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def train(model):
    model.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    return model.evaluate(X, Y, verbose=0)


def trained(shard):
    strategy = kerasmgpu.strategy(shard=shard)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Dense(64), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile("adam", "mse", jit_compile=False)
    return model, train(model)


def run(strategy, _, files):
    """Returns all losses, and the sum of the first model's first kernel."""
    made = [trained(shard) for shard in ("weights", None, "weights")]
    first, _ = made[0]
    losses = [loss for _, loss in made] + [train(first)]
    # Reads variables of the first strategy, which all workers share.
    return losses, float(np.abs(first.get_weights()[0]).sum())
