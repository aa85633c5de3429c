"""What the snippets of each page take for granted.

A page's code may use all names of `COMMON`, then those of its own here.
"""

COMMON = """
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu

random = np.random.default_rng(1)
x = random.normal(size=(203, 20)).astype("float32")
y = x.sum(axis=1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(100)
images, labels = tf.constant(x), tf.constant(y)


def build_model():
    return keras.Sequential([keras.Input((20,)), keras.layers.Dense(1)])


def build_and_compile_model():
    model = build_model()
    model.compile("sgd", "mse")
    return model


model = build_and_compile_model()
"""

BY_PAGE = {
    "README.md": "dataset = dataset.unbatch()",
    "docs/checkpoints.md": """
strategy = kerasmgpu.strategy()
steps_per_epoch = 2

def make_endless_dataset(seed, first_step):
    return dataset.unbatch().batch(50).repeat().skip(first_step)
""",
    "docs/input.md": """
import sys
sys.argv[1:] = ["kerasmgpu", "shuffled"]
rows = random.normal(size=(203, 32)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((rows, y)).batch(100)
""",
    "docs/partition.md": """
def train_step(x, y):
    return tf.reduce_mean((x - y) ** 2)
""",
    "docs/placement.md": """
x = random.normal(size=(64, 64)).astype("float32")
y = random.normal(size=(64, 10)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(3)
""",
    "recipes/polynomial/README.md": """
x = tf.constant([1.0, 2.0, 3.0])
def polynomial(x):
    return 5 * x**2 + 3
""",
}

AFTERWARDS = {
    "docs/checkpoints.md": "assert first_step == 0",
    "docs/clusters.md": "assert list(pathlib.Path('checkpoints').iterdir())",
    "docs/finders.md": """
assert 1e-7 < found.suggestion < found.minimum < 10
assert pathlib.Path("losses.png").exists()
""",
    "docs/five_minutes.md": "assert len(loaded.layers) == len(model.layers)",
    "docs/partition.md": """
np.testing.assert_allclose(loss, train_step(images, labels), rtol=1e-5)
""",
    "docs/speed.md": """
clock = Clock()
model.fit(dataset, callbacks=[clock])
assert len(clock.times) == 3
""",
    "docs/throughput.md": """
assert len(pathlib.Path("throughput.jsonl").read_text().splitlines()) == 3
""",
    "docs/report.md": """
assert sorted(path.name for path in pathlib.Path("runs/1").iterdir()) == [
    "history.jsonl", "run.json", "steps.jsonl"
]
""",
    "docs/verify.md": "build().fit(*data())",
    "recipes/polynomial/README.md": "assert y.numpy().tolist() == [8, 23, 48]",
}
"""Where a snippet defines something, or leaves something: what must be so."""

ON_CPUS = ("docs/placement.md",)
"""Pages whose code names GPUs, and says that logical CPU devices will do."""
