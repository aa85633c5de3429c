"""A start of a small training with XLA, for `test_xla_cache`."""

import numpy as np

import kerasmgpu

strategy = kerasmgpu.strategy(virtual_devices=2)

import keras  # noqa: E402

keras.utils.set_random_seed(1)
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu")])
    model.compile("adam", "mse", jit_compile=True)
x = np.arange(32, dtype="float32").reshape(8, 4) / 32
logs = model.fit(x, x[:, :3], batch_size=8, epochs=2, verbose=0)
print(logs.history["loss"])
