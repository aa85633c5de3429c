"""Counts and times what dividing tokens, or rows of images, takes of a device.

    python -m benchmarks.inner_axes                   # the tables of docs/meshes.md
    python -m benchmarks.inner_axes --train=gpt --units=128 --batch=8x256 \\
        --shape=1x4                                   # also --backend=jax
    python -m benchmarks.inner_axes --train=u_net --batch=1x1024 --shape=1x1
    kerasmgpu launch --num_workers=4 -- python -m benchmarks.inner_axes \\
        --train=u_net --batch=1x1024 --shape=1x4 --most_mb=4200

A batch is rows x tokens, or images x their height and width. The first axis of a
mesh divides rows, the second tokens or rows of images. Bytes held are those that
`kerasmgpu memory` foretells for GPUs; logical CPUs train. With `--most_mb` a
process may have so many megabytes of data (`RLIMIT_DATA`) while it trains.
"""

import itertools
import math
import os
import resource
import statistics
import time

from absl import app, flags

TRAIN = flags.DEFINE_enum("train", None, ["gpt", "u_net"], "Model to train.")
BATCH = flags.DEFINE_string("batch", "8x256", "Rows and tokens, or pixels.")
SHAPE = flags.DEFINE_string("shape", "1x4", "Rows and columns of the mesh.")
UNITS = flags.DEFINE_integer("units", 64, "Units of the GPT.")
MOST_MB = flags.DEFINE_integer("most_mb", None, "Megabytes of data.")
BACKEND = flags.DEFINE_enum(
    "backend", "tensorflow", ["tensorflow", "jax"], "Backend of Keras."
)
COUNTED = {
    "gpt": {"4x256": ("1x1", "4x1", "1x4", "2x2"), "1x2048": ("1x1", "1x4")},
    "u_net": {"4x256": ("1x1", "4x1", "1x4", "2x2"), "1x512": ("1x1", "1x4")},
}
"""Batches and meshes of the tables."""
WORDS, STEPS, SETTING = 512, 12, "KERASMGPU_INNER_AXES"


def main(argv):
    del argv
    os.environ["KERAS_BACKEND"] = BACKEND.value
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if TRAIN.value:
        train(TRAIN.value, BATCH.value, SHAPE.value)
        return
    from kerasmgpu.engine.devices import make_logical_cpus

    make_logical_cpus(4)
    for name, batches in COUNTED.items():
        for batch, shapes in batches.items():
            for shape in shapes:
                count(name, batch, shape)


def count(name, batch, shape):
    """Prints what a device computes, sends and holds."""
    import kerasmgpu

    os.environ[SETTING] = f"{name} {batch} {shape}"
    report = kerasmgpu.layout_report(*counted())
    halos = sum(one.sent.get("send_rows", 0) for one in report.layers)
    row = kerasmgpu.memory.memory(
        "benchmarks.inner_axes:counted",
        replicas=math.prod(sizes(shape)),
        global_batch_size=sizes(batch)[0],
        show=False,
    )["rows"][0]
    print(
        f"{name} of {batch} on {shape}: computes {report.computes:.3f}, sends "
        f"{report.sent / 1e6:.2f} MB, of it halos {halos / 1e6:.2f}; holds "
        f"{row['total'] / 1e6:.1f} MB",
        flush=True,
    )


def counted():
    """The model and the batch of the setting; `kerasmgpu memory` calls it."""
    import keras

    name, batch, shape = os.environ[SETTING].split()
    keras.distribution.set_distribution(distribution(name, batch, shape))
    return MODELS[name](sizes(batch)[1], 64), data(name, *sizes(batch))


def train(name, batch, shape):
    """Trains, and prints the time of a step, the loss and the largest memory."""
    count = math.prod(sizes(shape))
    if BACKEND.value == "jax":
        os.environ["XLA_FLAGS"] = (
            f"--xla_force_host_platform_device_count={count}"
        )
        os.environ["JAX_PLATFORMS"] = "cpu"
    else:
        from kerasmgpu.engine import devices
        from kerasmgpu.job import cluster

        if cluster.from_environment() is None:
            devices.make_logical_cpus(count)
    import keras

    if count > 1:
        keras.distribution.set_distribution(distribution(name, batch, shape))
    model = MODELS[name](sizes(batch)[1], UNITS.value)
    if MOST_MB.value:
        most = MOST_MB.value << 20
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    ends = [time.perf_counter()]
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    batches = (pair for pair in itertools.repeat(data(name, *sizes(batch))))
    losses = model.fit(
        batches,
        steps_per_epoch=STEPS,
        epochs=2,
        verbose=0,
        callbacks=[note],
    ).history["loss"]
    steps = [end - start for start, end in zip(ends, ends[1:])]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{name} of {batch} on {shape}, {BACKEND.value}: first step "
        f"{steps[0]:.1f} s, then {1000 * statistics.median(steps[STEPS:]):.0f} ms, "
        f"loss {losses[-1]:.6f}, peak {peak >> 10} MB",
        flush=True,
    )


def sizes(text):
    return tuple(map(int, text.split("x")))


def distribution(name, batch, shape):
    """Divides rows, and tokens or rows of images, along the axes of a mesh."""
    import keras

    of = keras.distribution
    shape = sizes(shape)
    # None where nothing is divided: a batch of one row has none to divide.
    axes = [
        axis if number > 1 and size > 1 else None
        for axis, number, size in zip(("batch", "inner"), shape, sizes(batch))
    ]
    mesh = of.DeviceMesh(
        shape, ("batch", "inner"), of.list_devices()[: math.prod(shape)]
    )
    layouts = of.LayoutMap(mesh)
    if keras.backend.backend() == "tensorflow":
        if shape[1] > 1:
            layouts[f"{INPUTS[name]}/output"] = tuple(axes)
        return of.ModelParallel(layout_map=layouts, batch_dim_name="batch")

    class InnerAxes(of.ModelParallel):
        """On JAX a distribution lays out batches by their shapes."""

        def get_data_layout(self, data_shape):
            rest = [None] * len(data_shape)
            divided = (axes + rest)[: len(data_shape)]
            return of.TensorLayout(divided, self.device_mesh)

    return InnerAxes(layout_map=layouts, batch_dim_name="batch")


def data(name, rows, size):
    """A batch: words and the next ones, or images and a class of each pixel."""
    import numpy as np

    random = np.random.default_rng(0)
    if name == "gpt":
        words = random.integers(0, WORDS, (rows, size)).astype("int32")
        return words, np.roll(words, -1, 1)
    images = random.normal(size=(rows, size, size, 3)).astype("float32")
    return images, random.integers(0, 4, (rows, size, size)).astype("int32")


def gpt(tokens, units):
    """Two layers of four heads, with a table of positions."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(1)
    words = keras.Input((tokens,), dtype="int32", name=INPUTS["gpt"])
    positions = layers.Embedding(tokens, units)(keras.ops.arange(tokens))
    x = layers.Embedding(WORDS, units)(words) + positions
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        attend = layers.MultiHeadAttention(4, units // 4)
        x = x + attend(normal, normal, use_causal_mask=True)
        wide = layers.Dense(4 * units, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dense(units)(wide)
    return compiled(words, layers.Dense(WORDS)(x))


def u_net(size, units):
    """Three levels of 32 to 256 channels, normalised over the batch."""
    del units
    import keras
    from keras import layers

    def twice(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    keras.utils.set_random_seed(1)
    x = images = keras.Input((size, size, 3), name=INPUTS["u_net"])
    kept = []
    for channels in (32, 64, 128):
        x = twice(x, channels)
        kept.append((channels, x))
        x = layers.MaxPooling2D(2)(x)
    x = twice(x, 256)
    for channels, skip in reversed(kept):
        x = layers.Conv2DTranspose(channels, 2, strides=2)(x)
        x = twice(layers.Concatenate()([x, skip]), channels)
    return compiled(images, layers.Conv2D(4, 1)(x))


def compiled(inputs, outputs):
    import keras

    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=keras.backend.backend() == "jax")
    return model


INPUTS = {"gpt": "tokens", "u_net": "images"}
MODELS = {"gpt": gpt, "u_net": u_net}

if __name__ == "__main__":
    app.run(main)
