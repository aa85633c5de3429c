"""A model and its data, and a job that trains it."""

import keras
import numpy as np

import kerasmgpu


def build():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu")])
    model.compile("adam", "mse", metrics=["mae"], jit_compile=True)
    return model


def on_a_mesh():
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["dense.*/bias"] = ("model",)
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
    )
    return build()


def data():
    x = np.arange(32, dtype="float32").reshape(8, 4) / 32
    return x, x[:, :3]


def main():
    with kerasmgpu.strategy(virtual_devices=2).scope():
        model = build()
    x, y = data()
    print(model.fit(x, y, batch_size=8, epochs=2, verbose=2).history["loss"])
    print(model.predict(x, batch_size=8, verbose=0).tolist())


if __name__ == "__main__":
    main()
