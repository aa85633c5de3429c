"""Records logs, variables and copies' differences after each step."""

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu._keras.training_state import optimizers, slot_names
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from kerasmgpu.verify.outcome import save_arrays


class Recorder(keras.callbacks.Callback):
    """Records logs, variables and copies' differences after each step."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__()
        self.folder = folder
        self.first_step_seconds = 0.0
        self.steps: list[int] = []
        self.logs: list[dict[str, float]] = []
        self.spread: dict[str, float] = {}
        self.slots: list[list[str]] = []

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._begin = time.perf_counter()

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        step = batch + 1
        if step == 1:
            self.first_step_seconds = time.perf_counter() - self._begin
        self.steps.append(step)
        self.logs.append(numbers(logs))
        save_arrays(self.folder / f"step-{step}.npz", values(self.model))
        found = list(_slots(self.model))
        self.slots.append([kind for kind, _ in found])
        save_arrays(
            self.folder / f"slots-{step}.npz",
            [as_array(slot.value) for _, slot in found],
        )
        for variable in self.model.variables:
            spread = spread_of(variable)
            if spread:
                self.spread.setdefault(variable.path, spread)


def _slots(model: keras.Model) -> Iterator[tuple[str, keras.Variable]]:
    """Yields the variables of optimizers that have made an update.

    An optimizer that `compile` makes by default, and that the step doesn't use,
    is built in some strategies only.

    Yields:
        Pairs of the variable's name without that of its weight, such as
        `"momentum"`, and the variable.
    """
    names = {id(slot): name for slot, name in slot_names(model)}
    for optimizer in optimizers(model):
        if not int(keras.ops.convert_to_numpy(optimizer.iterations)):
            continue
        for slot in optimizer.variables:
            yield names[id(slot)], slot


def spread_of(variable: keras.Variable) -> float:
    """Returns the largest difference between the copies of a variable."""
    if getattr(variable, "synchronization", "auto") == "on_read":
        return 0.0  # Each replica holds a partial sum.
    value, spread = variable.value, 0.0
    groups: list[Any] = [getattr(value, "values", ())]
    if isinstance(value, ShardedVariable):
        groups = value.copies_of_parts()
    for group in groups:
        copies = [as_array(copy) for copy in group]
        if (
            not copies
            or copies[0].dtype.kind not in "iuf"
            or not copies[0].size
        ):
            continue
        copies = [copy.astype("float64") for copy in copies]
        differences = [np.abs(copy - copies[0]).max() for copy in copies]
        spread = max(spread, *map(float, differences))
    return spread if np.isfinite(spread) else float("inf")


def numbers(logs: dict[str, Any] | None) -> dict[str, float]:
    """Returns logs as a dictionary of floats; vectors as their mean."""
    return {name: float(np.mean(value)) for name, value in (logs or {}).items()}


def values(model: keras.Model) -> list[np.ndarray]:
    """Returns the values of a model's variables."""
    return [as_array(variable.value) for variable in model.variables]


def as_array(value: Any) -> np.ndarray:
    """Returns a tensor's values, of a type that `.npz` files can hold."""
    if isinstance(value, tf.RaggedTensor):
        # Of `predict`, where a row's shape depends on the batch's size.
        value = value.flat_values
    array = tf.convert_to_tensor(value).numpy()
    # `.npz` files can't hold bfloat16 and float8.
    return array if array.dtype.kind in "biuf" else array.astype("float32")
