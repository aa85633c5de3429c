"""The table of families, and what the modules of this folder fill it with.

A family builds a model by the settings that KerasHub's own tests of it have,
and says what to fit it on. It knows nothing of strategies or precisions.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from tests.models.registry import generator, images, integers, reals, sentences

FAMILIES = {}

ROWS = 10
BATCH_SIZE = 4
"""Two batches of 4 rows and one of 2: on three replicas shares of 2, 1, 1 and of
1, 1, 0 rows."""


@dataclasses.dataclass
class Program:
    """What a family fits, and continues.

    Attributes:
        model: Compiled model.
        x, y, sample_weight: Arguments of `fit`, of `ROWS` rows.
        prompt: What `generate` continues; `None` for models that don't.
    """

    model: keras.Model
    x: Any
    y: Any = None
    sample_weight: Any = None
    prompt: Any = None


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        name: Name in the table, as KerasHub's folder is called.
        kind: What it is for; the module's name.
        make: Function that makes its `Program`.
        float32: Why parts of it compute in float32, whatever Keras's `floatx`.
        precision: Keras's `floatx`; not every family knows float64.
        layouts: Function that takes a `keras.distribution.DeviceMesh` with the
            axes `"batch"` and `"model"`, and returns a `LayoutMap`, or `None`.
    """

    name: str
    kind: str
    make: Callable
    float32: str = ""
    precision: str = "float64"
    layouts: Callable = lambda mesh: None

    @property
    def tolerance(self):
        """Largest distance that is rounding."""
        return 1e-4 if self.float32 else 1e-7


def family(name, make=None, **settings):
    """Registers a function that makes a `Program`; see `Family`."""
    if make is None:
        return lambda make: family(name, make, **settings)
    if name in FAMILIES:
        raise ValueError(f"There are two families called {name!r}.")
    kind = make.__module__.rsplit(".", 1)[-1].replace("_", " ")
    FAMILIES[name] = Family(name, kind, make, **settings)
    return make


def hub():
    """KerasHub's models; it takes seconds to import and may be missing."""
    import keras_hub

    return keras_hub.models


def rs():
    """keras-rs; it may be missing."""
    import keras_rs

    return keras_rs


def optimizer():
    """Not Adam: it makes steps of the rounding in gradients that are 0."""
    return keras.optimizers.SGD(0.05, momentum=0.9)


def class_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def regressed(model, x):
    """A backbone that is fitted to random numbers."""
    model.compile(optimizer(), "mse")

    def like(output):
        return reals(ROWS, *(size or 1 for size in output.shape[1:]))

    return Program(model, x, keras.tree.map_structure(like, model.output))


def classified(backbone, task, x, classes=3, **settings):
    """A backbone under a head that guesses a class."""
    model = task(
        backbone=backbone, num_classes=classes, preprocessor=None, **settings
    )
    model.compile(optimizer(), class_loss(), metrics=["accuracy"])
    return Program(model, x, integers(classes, ROWS))


def pictures(side, width=None, channels=3):
    return images(ROWS, side, width or side, channels)


def tokens(vocabulary, length, seed=0):
    """Sentences of different lengths, and what of them is no padding."""
    found = sentences(vocabulary, ROWS, length, seed=seed)
    return {"token_ids": found, "padding_mask": (found != 0).astype("int32")}


__all__ = [
    "BATCH_SIZE",
    "FAMILIES",
    "ROWS",
    "Family",
    "Program",
    "class_loss",
    "classified",
    "family",
    "generator",
    "hub",
    "images",
    "integers",
    "optimizer",
    "pictures",
    "reals",
    "regressed",
    "rs",
    "sentences",
    "tokens",
]
