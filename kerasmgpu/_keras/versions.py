"""Warns of versions whose seams weren't checked; finds names that differ.

Imported before any private name: if another version lacks one, the warning
precedes the `ImportError` and explains it.
"""

import contextlib
import importlib
import warnings
from types import ModuleType

from kerasmgpu._keras.backend_check import require_tensorflow

require_tensorflow()

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

from kerasmgpu.engine import TENSORFLOW_RANGE  # noqa: E402

KERAS_RANGE = ((3, 10), (3, 15))
"""First and last minor version of Keras on which the seams were checked."""


def warn_outside_range() -> None:
    """Warns once if Keras or TensorFlow has an unchecked version."""
    known, found = [], []
    for name, version, (first, last) in (
        ("Keras", keras.version(), KERAS_RANGE),
        ("TensorFlow", tf.version.VERSION, TENSORFLOW_RANGE),
    ):
        minor = tuple(int(part) for part in version.split(".")[:2])
        if not first <= minor <= last:
            known.append(f"{name} {_text(first)} to {_text(last)}")
            found.append(f"{name} {version}")
    if found:
        warnings.warn(
            f"kerasmgpu was checked on {' and '.join(known)}, and this is "
            f"{' and '.join(found)}. If the import fails, install a checked "
            "version; otherwise run `python -m kerasmgpu.verify` on your model "
            "before you rely on its results.",
            stacklevel=2,
        )


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


warn_outside_range()


def _trainer(module: str) -> type:
    """Returns one of the two trainer classes that `keras.Model` inherits from.

    They are found by their modules, since Keras 3.16 renames the classes
    (`TensorFlowTrainer` to `Trainer`, `Trainer` to `BaseTrainer`) and keeps
    modules and methods.
    """
    (trainer,) = {
        base for base in keras.Model.__mro__ if base.__module__ == module
    }
    return trainer


TensorFlowTrainer = _trainer("keras.src.backend.tensorflow.trainer")
Trainer = _trainer("keras.src.trainers.trainer")


def _module(*names: str) -> ModuleType:
    """Imports the first module that exists: releases of Keras move them."""
    for name in names[:-1]:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    return importlib.import_module(names[-1])


tensorflow_core = _module(
    "keras.src.backend.tensorflow.core",
    "keras.src.backend.tensorflow.ops.core",  # From Keras 3.16 on.
)
"""The module with `remat`, and with the class of variables."""
TensorFlowVariable = tensorflow_core.Variable

grain_adapter: ModuleType | None = None
"""The module that reads `grain` data, which Keras has from 3.11 on."""
with contextlib.suppress(ModuleNotFoundError):
    grain_adapter = importlib.import_module(
        "keras.src.trainers.data_adapters.grain_dataset_adapter"
    )
