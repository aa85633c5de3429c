"""What programs of KerasHub's and keras-rs's models are made of."""

import keras

from benchmarks.exactness.data import images, integers, reals, sentences
from benchmarks.exactness.registry import Program

ROWS = 10
BATCH_SIZE = 4
"""Two batches of 4 rows and one of 2: on three replicas shares of 2, 1, 1 and of
1, 1, 0 rows."""


def program(model, x, y=None, sample_weight=None, prompt=None):
    """A program on `ROWS` rows in their order; see `registry.Program`."""
    fit = dict(x=x, y=y, sample_weight=sample_weight)
    fit.update(batch_size=BATCH_SIZE, shuffle=False)
    return Program(model, fit, prompt=prompt)


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

    return program(model, x, keras.tree.map_structure(like, model.output))


def classified(backbone, task, x, classes=3, **settings):
    """A backbone under a head that guesses a class."""
    model = task(
        backbone=backbone, num_classes=classes, preprocessor=None, **settings
    )
    model.compile(optimizer(), class_loss(), metrics=["accuracy"])
    return program(model, x, integers(classes, ROWS))


def pictures(side, width=None, channels=3):
    return images(ROWS, side, width or side, channels)


def tokens(vocabulary, length, seed=0):
    """Sentences of different lengths, and what of them is no padding."""
    found = sentences(vocabulary, ROWS, length, seed=seed)
    return {"token_ids": found, "padding_mask": (found != 0).astype("int32")}
