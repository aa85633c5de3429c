"""A start of small trainings with XLA, for `test_xla_cache`."""

import numpy as np

import kerasmgpu

strategy = kerasmgpu.strategy(virtual_devices=2)
in_parts = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"], micro_batches=2)

import keras  # noqa: E402

keras.config.set_floatx("float64")
x = np.arange(96.0).reshape(24, 4) / 96


def numbers(strategy, **settings):
    """Trains a model twice compiled; losses, evaluation and predictions."""
    keras.utils.set_random_seed(1)
    found = []
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3, "relu")]
        )
        for optimizer in ("adam", "sgd"):
            # Of two steps per execution the last one finds no batch.
            model.compile(optimizer, "mse", steps_per_execution=2, **settings)
            logs = model.fit(x, x[:, :3], batch_size=8, epochs=2, verbose=0)
            found += logs.history["loss"]
    found.append(model.evaluate(x, x[:, :3], batch_size=8, verbose=0))
    return [*found, *model.predict(x, batch_size=8, verbose=0).ravel()]


one_device = numbers(kerasmgpu.MirroredStrategy(["CPU:0"]), jit_compile=False)
for several in (strategy, in_parts):
    with_xla = numbers(several, jit_compile=True)
    np.testing.assert_allclose(with_xla, one_device, rtol=1e-12)
    print(with_xla)
