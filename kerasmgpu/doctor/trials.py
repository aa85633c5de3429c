"""The small models of `--train`, and findings about their training."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from kerasmgpu.doctor.findings import Finding, fine, found

BATCH = 26
"""Rows of a global batch, which few numbers divide."""
ROWS = 4 * BATCH


@dataclasses.dataclass(frozen=True)
class Trial:
    """A model and how it is trained.

    Attributes:
        tensors: Function that returns the model's input and features.
        policy: String, Keras's dtype policy.
        strategy: Dictionary of arguments of `kerasmgpu.strategy`.
        jit_compile: Boolean, whether XLA compiles the step.
        optimizer: String, Keras's name.
        classes: Integer, kinds of input tokens; 0 for real numbers.
        reload: Boolean, whether the model is saved and loaded again.
    """

    tensors: Callable[[], tuple[Any, Any]]
    policy: str = "float32"
    strategy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    jit_compile: bool = False
    optimizer: str = "sgd"
    classes: int = 0
    reload: bool = False

    def model(self) -> Any:
        """Returns the `keras.Model`, built and compiled."""
        import keras

        inputs, features = self.tensors()
        outputs = keras.layers.Dense(1, dtype=self._dtype())(features)
        model = keras.Model(inputs, outputs)
        model.compile(self.optimizer, "mse", jit_compile=self.jit_compile)
        return model

    def data(self, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs `[ROWS, *shape]` and targets `[ROWS, 1]`."""
        random = np.random.default_rng(0)
        y = random.normal(size=(ROWS, 1)).astype(self._dtype())
        if self.classes:
            return random.integers(0, self.classes, (ROWS, *shape)), y
        return random.normal(size=(ROWS, *shape)).astype(self._dtype()), y

    def _dtype(self) -> str:
        """The type of variables, and of the model's output."""
        is_mixed = self.policy.startswith("mixed_")
        return "float32" if is_mixed else self.policy


def _dense() -> tuple[Any, Any]:
    from keras import Input, layers

    inputs = Input((16,))
    x = layers.Dense(64, "tanh")(inputs)
    return inputs, layers.Dense(64, "tanh")(x)


def _convolution() -> tuple[Any, Any]:
    from keras import Input, layers

    inputs = Input((12, 12, 3))
    x = layers.Conv2D(8, 3, strides=2)(inputs)
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    return inputs, layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3)(x))


def _lstm() -> tuple[Any, Any]:
    from keras import Input, layers

    inputs = Input((8, 4))
    # Arguments with which Keras uses cuDNN's LSTM on a GPU.
    return inputs, layers.LSTM(16)(inputs)


def _transformer() -> tuple[Any, Any]:
    from keras import Input, layers

    inputs = Input((8,), dtype="int32")
    x = layers.Embedding(32, 16)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    return inputs, layers.GlobalAveragePooling1D()(layers.Dropout(0.1)(x))


def _embedding() -> tuple[Any, Any]:
    from keras import Input, layers

    inputs = Input((4,), dtype="int32")
    return inputs, layers.Flatten()(layers.Embedding(64, 16)(inputs))


def _sharded(what: str) -> dict[str, Any]:
    return {"shard": what, "min_shard_bytes": 0}


TRIALS = {
    "dense, float64": Trial(_dense, "float64"),
    "dense, saved and loaded": Trial(_dense, reload=True),
    "dense, XLA": Trial(_dense, jit_compile=True),
    "convolution and batch normalisation": Trial(_convolution),
    "convolution, XLA": Trial(_convolution, jit_compile=True),
    "LSTM (cuDNN's on GPUs)": Trial(_lstm),
    "self-attention and dropout": Trial(_transformer, classes=32),
    "convolution, mixed float16": Trial(_convolution, "mixed_float16"),
    "dense, mixed bfloat16": Trial(_dense, "mixed_bfloat16"),
    "sharded optimizer, float64": Trial(
        _dense, "float64", strategy=_sharded("optimizer"), optimizer="adam"
    ),
    "sharded weights": Trial(_dense, strategy=_sharded("weights")),
    "sharded embeddings": Trial(
        _embedding, strategy=_sharded("embeddings"), classes=64
    ),
    "micro-batches": Trial(_convolution, strategy={"micro_batches": 2}),
}
"""Maps names to trials. Another, of a job of two workers, is `JOB`."""

JOB = "job of two workers, float64"
# With one GPU it runs on CPUs, whose float32 rounds otherwise.
JOB_TRIAL = Trial(_dense, "float64")


_ROUNDING = 10.0
"""Factor up to which a difference counts as that of one rounding error."""


def judge_trials(trials: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """Judges trials.

    Args:
        trials: Dictionary from names to what `trial.main` returned, or
            `{"error": why it failed}`.
    """
    for name, facts in trials.items():
        if "error" in facts:
            yield found("trial_failed", "training", f"{name}: {facts['error']}")
            continue
        distance, tolerance = facts["distance"], facts["tolerance"]
        text = f"{name}: differs from one device by {distance:.1e}"
        if distance <= tolerance:
            yield fine("trial", "training", f"{text} (at most {tolerance:.0e})")
        elif distance <= _ROUNDING * (facts["rounding"] or 0.0):
            text += f", one rounding error leads to {facts['rounding']:.1e}"
            yield found("trial_rounds", "training", text)
        else:
            text += f", at most {tolerance:.0e} was expected"
            yield found("trial_differs", "training", text)
