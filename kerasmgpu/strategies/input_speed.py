"""Is the input the limit? The pipeline alone against the model alone."""

import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu import callbacks
from kerasmgpu.errors import InputError, checked_integer

_EPOCHS = 3


@dataclasses.dataclass(frozen=True)
class InputSpeed:
    """What `compare_input` measured; `str()` is one line.

    Attributes:
        input_examples_per_second: Float, the pipeline alone.
        model_examples_per_second: Float, the model alone.

    Example:

    >>> print(InputSpeed(5000.0, 2000.0))
    input 5000 examples/s, model 2000 examples/s: compute-bound (2.50 times)
    """

    input_examples_per_second: float
    model_examples_per_second: float

    @property
    def ratio(self) -> float:
        """Float, the input's speed over the model's; below 1 it is the limit."""
        return self.input_examples_per_second / self.model_examples_per_second

    def __str__(self) -> str:
        limit = "input" if self.ratio < 1 else "compute"
        return (
            f"input {self.input_examples_per_second:.0f} examples/s, "
            f"model {self.model_examples_per_second:.0f} examples/s: "
            f"{limit}-bound ({self.ratio:.2f} times)"
        )


def compare_input(
    model: keras.Model, dataset: tf.data.Dataset, steps: int = 50
) -> InputSpeed:
    """Measures how fast the input is without the model, and the reverse.

    The input is read on the way that it takes in `fit`, to each replica's
    device, by a step that computes nothing. The model trains on the first
    batch over and over, which stays in memory; its variables and its
    optimizer's are then set back. Medians of 3 epochs by `ThroughputLogger`:
    tracing is left out, what an epoch's first batch takes (a shuffle buffer
    that fills, say) is not. Let `steps` be many more than are prefetched.

    Input and model are alone here and share the cores in training: where
    devices are the CPU, or cores are few, training is slower than either.
    `ThroughputLogger`'s `input_wait_share` tells what is left of it there.

    Args:
        model: Compiled and built `keras.Model`, under any strategy or none.
        dataset: `tf.data.Dataset` of global batches, as for `model.fit`.
        steps: Integer, batches per epoch; fewer where the data ends before.
            Defaults to 50.

    Returns:
        `InputSpeed`.

    Raises:
        InputError: If `model` has no variables yet, `dataset` is none or has
            no batch, or `steps` is less than 1.

    Example:

    ```python
    print(kerasmgpu.compare_input(model, dataset))
    ```
    """
    steps = checked_integer(steps, "steps", 1)
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(
            "compare_input reads a tf.data.Dataset of batches. Received: "
            f"dataset of type {type(dataset).__name__}; make one of arrays by "
            "tf.data.Dataset.from_tensor_slices(...).batch(...)"
        )
    if int(dataset.cardinality()) == 0:
        raise InputError(
            "compare_input reads batches. Received: a dataset without a batch"
        )
    if not model.built:
        raise InputError(
            "compare_input sets a model's variables back after it. Received: "
            f"model {model.name!r}, which has none yet; call it on a batch, or "
            "fit one step, before"
        )
    with model.distribute_strategy.scope():
        reader = _Reader(name="input_reader")
        reader.compile(jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    read = _examples_per_second(reader, dataset.take(steps))
    variables = [*model.variables, *model.optimizer.variables]
    values = [variable.numpy() for variable in variables]
    try:
        first = dataset.take(1).cache().repeat(steps)
        trained = _examples_per_second(model, first)
    finally:
        for variable, value in zip(variables, values):
            variable.assign(value)
    return InputSpeed(read, trained)


class _Reader(keras.Model):
    """A model whose step takes a batch and computes nothing."""

    def call(self, inputs: Any) -> Any:
        return inputs

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        return {"loss": tf.constant(0.0)}


def _examples_per_second(model: keras.Model, dataset: tf.data.Dataset) -> float:
    history = model.fit(
        dataset,
        epochs=_EPOCHS,
        shuffle=False,
        callbacks=[callbacks.ThroughputLogger()],
        verbose=0,
    ).history["examples_per_second"]
    # The epoch that traced has none if it was of a single step.
    counted = sorted(speed for speed in history if not math.isnan(speed))
    return counted[len(counted) // 2]
