"""Data of the convnet recipe: anything that `fit` takes, by a dotted name."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet import named_objects
from kerasmgpu.recipes.convnet.yaml_sections import Section
from kerasmgpu.recipes.datasets import row_order

_PARTS = ("training", "validation", "prediction")


@dataclasses.dataclass(frozen=True)
class Data:
    """Training, validation and prediction data of a run.

    `parts` has `"training"` and perhaps `"validation"` and `"prediction"`:
    tuples of arrays, `tf.data.Dataset`s or `keras.utils.PyDataset`s.
    `is_one_pass` says whether an epoch is one pass of a data set that makes its
    own batches.
    """

    parts: dict[str, Any]
    global_batch_size: int
    steps_per_epoch: int
    seed: int
    description: str
    is_one_pass: bool

    @property
    def goes_on(self) -> bool:
        """Whether the data can begin at any step."""
        return isinstance(self.parts["training"], tuple)

    def training(self, first_step: int) -> Any:
        """Training data; arrays begin at `first_step`."""
        part = self.parts["training"]
        if self.goes_on:
            return row_order.shuffled(
                part, self.global_batch_size, self.seed, first_step
            )
        if isinstance(part, tf.data.Dataset) and not self.is_one_pass:
            return part.repeat()
        return part

    @property
    def validation(self) -> Any:
        """Validation data, or `None`."""
        return self._in_order("validation")

    @property
    def prediction(self) -> tuple[Any, str]:
        """The data to predict, in order, and the name of that part.

        The prediction part, or else the validation or the training part.
        """
        name = next(name for name in reversed(_PARTS) if name in self.parts)
        if _is_endless(self.parts[name]):
            raise InputError(
                f"--predictions needs finite data. Received: the {name} data "
                "are endless; return a dictionary with prediction data too"
            )
        return self._in_order(name), name

    def _in_order(self, name: str) -> Any:
        part = self.parts.get(name)
        if not isinstance(part, tuple):
            return part
        with tf.device("CPU:0"):
            rows = tf.data.Dataset.from_tensor_slices(part)
        return rows.batch(self.global_batch_size).prefetch(tf.data.AUTOTUNE)

    @property
    def inputs(self) -> Any:
        """Shapes of the model's inputs: a nest of `keras.KerasTensor`s."""
        part = self.parts["training"]
        if isinstance(part, tf.data.Dataset):
            part = part.element_spec
        elif _is_py(part):
            part = part[0]
        inputs = part[0] if isinstance(part, (tuple, list)) else part
        return tf.nest.map_structure(
            lambda leaf: keras.KerasTensor(
                (None, *leaf.shape[1:]),
                dtype=tf.as_dtype(leaf.dtype).name,
                sparse=isinstance(leaf, tf.SparseTensorSpec),
            ),
            inputs,
        )


def load(config: Section) -> Data:
    """Calls the configured data set, with the configured seed set."""
    section, training = config["dataset"], config["training"]
    # A data set that shuffles takes its seed from the global one.
    keras.utils.set_random_seed(training["seed"])
    parts = _parts(section, named_objects.build(section))
    part, size = parts["training"], training.get("global_batch_size")
    makes_batches = not isinstance(part, tuple)
    steps: int | None
    if makes_batches:
        if size is not None:
            raise training.error(
                "global_batch_size",
                f"must be left out: the {type(part).__name__} of "
                f"{section[named_objects.CLASS]} makes the batches",
            )
        size = _num_rows(part[0] if _is_py(part) else next(iter(part)))
        steps = _num_batches(part)
        length = "batches of unknown number"
        if steps is not None:
            length = f"{steps:,} batches"
    else:
        if size is None:
            raise training.error(
                "global_batch_size", "is missing: rows of a step on all GPUs"
            )
        rows = _num_rows(part)
        steps, length = -(-rows // size), f"{rows:,} rows"
    steps = training.get("steps_per_epoch", steps)
    if steps is None:
        raise training.error(
            "steps_per_epoch",
            "is missing: the length of the data set is not known",
        )
    return Data(
        parts,
        size,
        steps,
        training["seed"],
        f"{section[named_objects.CLASS]}: {length}",
        makes_batches and "steps_per_epoch" not in training,
    )


def _parts(section: Section, value: Any) -> dict[str, Any]:
    """The parts by name; raises `InputError` for unknown forms."""
    several = (tuple, list)
    if isinstance(value, several) and len(value) == 2:
        # Two pairs are as `keras.datasets.mnist.load_data` returns them.
        if all(isinstance(item, several) for item in value):
            value = dict(zip(_PARTS, value))
    if not isinstance(value, dict):
        value = {"training": value}
    if "training" not in value or not set(value) <= set(_PARTS):
        raise section.error(
            named_objects.CLASS,
            f"must return a dictionary with {', '.join(_PARTS)} (the last two "
            f"may be left out). Received: {', '.join(map(str, value))}",
        )
    return {
        name: _checked_part(section, name, part) for name, part in value.items()
    }


def _checked_part(section: Section, name: str, part: Any) -> Any:
    if _is_py(part) or isinstance(part, tf.data.Dataset):
        return part
    if not isinstance(part, (tuple, list)) or len(part) not in (1, 2, 3):
        raise section.error(
            named_objects.CLASS,
            "must return arrays (x, y), a tf.data.Dataset or a "
            f"keras.utils.PyDataset. Received: {type(part).__name__} as {name}",
        )
    part = tf.nest.map_structure(np.asarray, tuple(part))
    shapes = [array.shape for array in tf.nest.flatten(part)]
    rows = {shape[0] if shape else 0 for shape in shapes}
    if len(rows) > 1 or 0 in rows:
        raise section.error(
            named_objects.CLASS,
            "must return arrays with the same rows, one at least. Received: "
            f"shapes {', '.join(map(str, shapes))} as {name}",
        )
    return part


def _is_py(part: Any) -> bool:
    return isinstance(part, keras.utils.PyDataset)


def _num_rows(part: Any) -> int:
    """Number of rows of arrays, or of a batch."""
    return int(tf.nest.flatten(part)[0].shape[0])


def _num_batches(part: Any) -> int | None:
    """Number of batches of a data set; `None` if endless or unknown."""
    if _is_py(part):
        return part.num_batches
    cardinality = int(part.cardinality())
    return cardinality if cardinality >= 0 else None


def _is_endless(part: Any) -> bool:
    if _is_py(part):
        return part.num_batches is None
    return (
        isinstance(part, tf.data.Dataset)
        and part.cardinality() == tf.data.INFINITE_CARDINALITY
    )
