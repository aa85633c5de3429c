"""Measures whether training is input-bound: pipeline and model, each alone."""

import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras import targets
from kerasmgpu.callbacks.throughput import median_speed
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_integer,
    shown,
)

_EPOCHS = 3


@dataclasses.dataclass(frozen=True)
class InputSpeed:
    """Result of `compare_input`; `str()` is one line.

    Attributes:
        input_examples_per_second: Float, throughput of the pipeline alone.
        model_examples_per_second: Float, throughput of the model alone.

    Example:

    >>> print(InputSpeed(5000.0, 2000.0))
    input 5000 examples/s, model 2000 examples/s: compute-bound (2.50 times)
    """

    input_examples_per_second: float
    model_examples_per_second: float

    @property
    def ratio(self) -> float:
        """Float, the input's speed over the model's; below 1: input-bound."""
        return self.input_examples_per_second / self.model_examples_per_second

    def __str__(self) -> str:
        limit = "input" if self.ratio < 1 else "compute"
        return (
            f"input {self.input_examples_per_second:.0f} examples/s, "
            f"model {self.model_examples_per_second:.0f} examples/s: "
            f"{limit}-bound ({self.ratio:.2f} times)"
        )


@checked_arguments
def compare_input(
    model: keras.Model, dataset: tf.data.Dataset, steps: int = 50
) -> InputSpeed:
    """Measures the throughput of the input and of the model, each alone.

    For the input, a step that computes nothing reads batches as in `fit`, to
    each replica's device. For the model, every step trains on the first batch,
    cached in memory; the variables of the model and its optimizer are then
    restored. Both are medians of 3 epochs by `ThroughputLogger`: tracing is
    left out, the time of an epoch's first batch (to fill a shuffle buffer, for
    example) is not. Choose `steps` much larger than the number of prefetched
    batches.

    In training, input and model share the CPU cores: on CPU devices, or with
    few cores, training is slower than either alone. `ThroughputLogger`'s
    `input_wait_share` shows the wait in training.

    Args:
        model: Compiled and built `keras.Model`, under any strategy or none.
        dataset: `tf.data.Dataset` of global batches, as for `model.fit`.
        steps: Integer, batches per epoch; fewer if the data end before.
            Defaults to 50.

    Returns:
        `InputSpeed`.

    Raises:
        InputError: If `model` has no variables yet, `dataset` is not a
            `tf.data.Dataset` or is empty, `steps` is less than 1, or every
            epoch's steps were traced.

    Example:

    ```python
    print(kerasmgpu.compare_input(model, dataset))
    ```
    """
    steps = checked_integer(steps, "steps", 1)
    if not isinstance(model, keras.Model) or not model.compiled:
        raise InputError(
            "compare_input trains a compiled keras.Model. Received: "
            f"model={shown(model)}"
        )
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
    _, y, _ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    targets.require(model, y, "dataset")
    if not model.built:
        raise InputError(
            "compare_input restores the model's variables at its end. Received: "
            f"model {model.name!r}, which has none yet; call it on a batch, or "
            "fit one step, first"
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
    speed = median_speed(model, dataset, epochs=_EPOCHS)
    if math.isnan(speed):
        raise InputError(
            "compare_input measures steps that are not traced. Received: data "
            f"of which each of {_EPOCHS} epochs has none; pass more steps, or "
            "batches of one shape"
        )
    return speed
