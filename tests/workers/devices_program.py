"""A case of `shared_program`: devices' figures; worker 1 holds more memory."""

import keras
import numpy as np

import kerasmgpu

MORE_BYTES = 600_000_000
"""Held by worker 1 alone: more than what cases before leave in the other."""


def run(strategy, _, folder):
    """Trains two epochs, and records; returns the history."""
    strategy = strategy()
    worker = strategy.cluster_resolver.task_id
    held = np.ones(MORE_BYTES * worker, np.uint8)
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    x = np.ones((8, 2))
    stats = kerasmgpu.callbacks.DeviceStats(folder / "devices.jsonl")
    history = model.fit(x, x, epochs=2, verbose=0, callbacks=[stats]).history
    del held
    return history
