"""Times a transformer on a mesh of `keras.distribution`, here and on JAX.

    python -m benchmarks.meshes --shape=2x2
    python -m benchmarks.meshes --shape=2x2 --backend=jax    # needs jax
    python -m benchmarks.meshes --shape=2x2 --layout=auto

Rows are divided along the first axis; heads, columns and then rows of the wide
layers, and the table's words along the second, as Megatron-LM does, unless the
layout is found. Devices are logical CPUs. Prints one line: the first step, the
median of the steps of the second and third epoch, and the last loss; and what
`layout_report` counts.
"""

import math
import os
import statistics
import time

from absl import app, flags

SHAPE = flags.DEFINE_string("shape", "2x2", "Rows and columns of the mesh.")
BACKEND = flags.DEFINE_enum(
    "backend", "tensorflow", ["tensorflow", "jax"], "Backend of Keras."
)
LAYOUT = flags.DEFINE_enum(
    "layout", "megatron", ["megatron", "auto"], "Layout of the variables."
)
STEPS, ROWS, TOKENS, WORDS, UNITS, LAYERS = 12, 16, 64, 1000, 256, 4


def main(argv):
    del argv
    shape = tuple(map(int, SHAPE.value.split("x")))
    count = math.prod(shape)
    os.environ["KERAS_BACKEND"] = BACKEND.value
    if BACKEND.value == "jax":
        os.environ["XLA_FLAGS"] = (
            f"--xla_force_host_platform_device_count={count}"
        )
    else:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from kerasmgpu.engine.devices import make_logical_cpus

        make_logical_cpus(count)
    import keras
    import numpy as np

    devices = keras.distribution.list_devices("cpu")[:count]
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    if LAYOUT.value == "auto":
        import kerasmgpu

        strategy = kerasmgpu.strategy(mesh=shape, layout="auto")
        with strategy.scope():
            model = built()
    else:
        keras.distribution.set_distribution(
            keras.distribution.ModelParallel(
                layout_map=layouts_of(mesh), batch_dim_name="batch"
            )
        )
        model = built()
    x = np.random.default_rng(0).integers(0, WORDS, (STEPS * ROWS, TOKENS))
    y, ends = np.roll(x, -1, 1), []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    began = time.perf_counter()
    history = model.fit(
        x, y, ROWS, epochs=3, verbose=0, shuffle=False, callbacks=[note]
    ).history
    steps = [end - start for start, end in zip(ends, ends[1:])][STEPS:]
    print(
        f"{BACKEND.value} on {SHAPE.value}: first step {ends[0] - began:.1f} s, "
        f"then {1000 * statistics.median(steps):.0f} ms, "
        f"loss {history['loss'][-1]:.6f}"
    )
    if BACKEND.value == "tensorflow":
        import kerasmgpu

        print(kerasmgpu.layout_report(model, (x[:ROWS], y[:ROWS])))


def layouts_of(mesh):
    """Megatron-LM's layouts for `built`."""
    import keras

    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*embeddings"] = ("model", None)
    layouts[".*(query|key|value)/kernel"] = (None, "model", None)
    layouts[".*(query|key|value)/bias"] = ("model", None)
    layouts[".*attention_output/kernel"] = ("model", None, None)
    layouts[".*up_.*/kernel"] = (None, "model")
    layouts[".*up_.*/bias"] = ("model",)
    layouts[".*down_.*/kernel"] = ("model", None)
    return layouts


def built():
    """The transformer, compiled."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    tokens = keras.Input((TOKENS,), dtype="int32")
    x = layers.Embedding(WORDS, UNITS)(tokens)
    for number in range(LAYERS):
        normal = layers.LayerNormalization()(x)
        attend = layers.MultiHeadAttention(8, UNITS // 8)
        x = x + attend(normal, normal, use_causal_mask=True)
        normal = layers.LayerNormalization()(x)
        wide = layers.Dense(4 * UNITS, "gelu", name=f"up_{number}")(normal)
        x = x + layers.Dense(UNITS, name=f"down_{number}")(wide)
    model = keras.Model(tokens, layers.Dense(WORDS)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=BACKEND.value == "jax")
    return model


if __name__ == "__main__":
    app.run(main)
