"""Data of the convnet recipe: whatever `fit` takes, from a dotted name."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.convnet import configured_objects
from kerasmgpu.recipes.shared import row_order

_PARTS = ("training", "validation", "prediction")


@dataclasses.dataclass(frozen=True)
class Data:
    """What a run trains on, validates on and predicts.

    Args:
        parts: Dictionary with `"training"` and perhaps `"validation"` and
            `"prediction"`: tuples of arrays, `tf.data.Dataset`s or
            `keras.utils.PyDataset`s.
        global_batch_size: Rows of a step on all replicas together.
        steps_per_epoch: Steps of an epoch.
        seed: Seed of the order of rows.
        description: One line that says what the data are.
        is_one_pass: Whether an epoch is one pass of data that make the
            batches themselves.
    """

    parts: dict
    global_batch_size: int
    steps_per_epoch: int
    seed: int
    description: str
    is_one_pass: bool

    @property
    def goes_on(self):
        """Whether training can begin at any step; or else data are read."""
        return isinstance(self.parts["training"], tuple)

    def training(self, first_step):
        """What `fit` trains on: from `first_step` on, if the data go on."""
        part = self.parts["training"]
        if self.goes_on:
            return row_order.shuffled(
                part, self.global_batch_size, self.seed, first_step
            )
        if isinstance(part, tf.data.Dataset) and not self.is_one_pass:
            return part.repeat()
        return part

    @property
    def validation(self):
        """What `fit` validates on, or `None`."""
        if "validation" not in self.parts:
            return None
        return self._in_order("validation")

    @property
    def prediction(self):
        """What is predicted, in its own order, and the name of that part.

        The part for it if there is one, else what is validated or trained on.

        Raises:
            InputError: If it has no end.
        """
        name = next(name for name in reversed(_PARTS) if name in self.parts)
        part = self.parts[name]
        if _is_endless(part):
            raise InputError(
                f"--predictions needs data that end. Received: the {name} data "
                "have no end; return a dictionary with prediction data too"
            )
        return self._in_order(name), name

    def _in_order(self, name):
        part = self.parts[name]
        if not isinstance(part, tuple):
            return part
        with tf.device("CPU:0"):
            rows = tf.data.Dataset.from_tensor_slices(part)
        return rows.batch(self.global_batch_size).prefetch(tf.data.AUTOTUNE)

    @property
    def inputs(self):
        """Shapes of the model's inputs: a nest of `keras.KerasTensor`s."""
        part = self.parts["training"]
        if isinstance(part, tf.data.Dataset):
            part = part.element_spec
        elif isinstance(part, keras.utils.PyDataset):
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


def load(config):
    """Calls what the configuration names as data set.

    Args:
        config: `Section`, the whole file.

    Returns:
        A `Data`.

    Raises:
        InputError: If it returns nothing that can be trained on, if its arrays
            have different numbers of rows, or if the length of a batch or an
            epoch is not known or given twice.
    """
    section, training = config["dataset"], config["training"]
    parts = _parts(section, configured_objects.build(section))
    part = parts["training"]
    if isinstance(part, tuple):
        if "global_batch_size" not in training:
            raise training.error(
                "global_batch_size", "is missing: rows of a step on all GPUs"
            )
        global_batch_size = training["global_batch_size"]
        rows = _num_rows(part)
        steps = -(-rows // global_batch_size)
        size = f"{rows:,} rows"
    else:
        if "global_batch_size" in training:
            raise training.error(
                "global_batch_size",
                f"must be left out: the {type(part).__name__} of "
                f"{section[configured_objects.CLASS]} makes the batches",
            )
        global_batch_size = _first_rows(part)
        steps = _num_batches(part)
        size = (
            "batches of unknown number"
            if steps is None
            else (f"{steps:,} batches")
        )
    steps = training.get("steps_per_epoch", steps)
    if steps is None:
        raise training.error(
            "steps_per_epoch",
            "is missing: the length of the data set is not known",
        )
    return Data(
        parts,
        global_batch_size,
        steps,
        training["seed"],
        f"{section[configured_objects.CLASS]}: {size}",
        not isinstance(part, tuple) and "steps_per_epoch" not in training,
    )


def _parts(section, value):
    """The parts by name; raises `InputError` if they can't be told."""
    pairs = isinstance(value, (tuple, list)) and all(
        isinstance(item, (tuple, list)) for item in value
    )
    if pairs and len(value) == 2:
        # As `keras.datasets.mnist.load_data` returns them.
        value = dict(zip(_PARTS, value))
    if not isinstance(value, dict):
        value = {"training": value}
    if "training" not in value or not set(value) <= set(_PARTS):
        raise section.error(
            configured_objects.CLASS,
            f"must return a dictionary with {', '.join(_PARTS)} (the last two "
            f"may be left out). Received: {', '.join(map(str, value))}",
        )
    return {
        name: _checked_part(section, name, part) for name, part in value.items()
    }


def _checked_part(section, name, part):
    if isinstance(part, (tf.data.Dataset, keras.utils.PyDataset)):
        return part
    if not isinstance(part, (tuple, list)) or len(part) not in (1, 2, 3):
        raise section.error(
            configured_objects.CLASS,
            "must return arrays (x, y), a tf.data.Dataset or a "
            f"keras.utils.PyDataset. Received: {type(part).__name__} as {name}",
        )
    part = tf.nest.map_structure(np.asarray, tuple(part))
    shapes = [array.shape for array in tf.nest.flatten(part)]
    rows = {shape[0] if shape else 0 for shape in shapes}
    if len(rows) > 1 or 0 in rows:
        raise section.error(
            configured_objects.CLASS,
            "must return arrays with the same rows, one at least. Received: "
            f"shapes {', '.join(map(str, shapes))} as {name}",
        )
    return part


def _num_rows(part):
    return len(tf.nest.flatten(part)[0])


def _num_batches(part):
    """Batches of a data set, or `None` where they are endless or unknown."""
    if isinstance(part, keras.utils.PyDataset):
        return part.num_batches
    cardinality = int(part.cardinality())
    return cardinality if cardinality >= 0 else None


def _is_endless(part):
    if isinstance(part, keras.utils.PyDataset):
        return part.num_batches is None
    return (
        isinstance(part, tf.data.Dataset)
        and part.cardinality() == tf.data.INFINITE_CARDINALITY
    )


def _first_rows(part):
    """Rows of the first batch."""
    if isinstance(part, keras.utils.PyDataset):
        first = part[0]
    else:
        first = next(iter(part))
    return int(tf.nest.flatten(first)[0].shape[0])
