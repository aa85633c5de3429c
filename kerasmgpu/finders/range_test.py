"""The range test: trains with a growing learning rate, restores the model."""

import contextlib
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu import _keras
from kerasmgpu._keras import random_state, targets, training_state
from kerasmgpu._keras.settable_rate import settable_rate
from kerasmgpu.commands import batches
from kerasmgpu.engine import pipelines
from kerasmgpu.errors import (
    InputError,
    checked_integer,
    shown,
)
from kerasmgpu.finders.learning_rate_choice import has_diverged, smooth
from kerasmgpu.job import workers


class RangeTest(keras.callbacks.Callback):
    """Sets each epoch's rate, and records its loss until that diverges.

    Args:
        rates: List of floats, the rate of each epoch.

    Attributes:
        set_rate: Function that sets the optimizer's learning rate.
        losses: List of floats, one per epoch.
        smoothed: List of floats, their moving average.
        diverged: Boolean.
    """

    def __init__(
        self, rates: list[float], smoothing: float, divergence: float
    ) -> None:
        super().__init__()
        self.rates = rates
        self._smoothing, self._divergence = smoothing, divergence
        self.set_rate: Callable[[float], Any]
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.diverged = False

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self.set_rate(self.rates[epoch])

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if not logs or "loss" not in logs:
            raise InputError(
                "find_learning_rate reads the loss of each step. Received: a "
                "model whose train_step returns "
                f"{', '.join(logs or {}) or 'nothing'}; return a 'loss', too"
            )
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            self.diverged = self.model.stop_training = True
            return
        self.losses.append(loss)
        self.smoothed = smooth(self.losses, self._smoothing)
        if has_diverged(self.smoothed, self._divergence):
            self.diverged = self.model.stop_training = True


def run(
    test: RangeTest,
    model: keras.Model,
    data: Any,
    global_batch_size: int,
    seed: int,
) -> None:
    """Trains a model with the rates of a test, then restores it.

    See `find_learning_rate` for the other arguments.
    """
    _keras.install()
    _require_trainable(model)
    steps = len(test.rates)
    given = data.element_spec if isinstance(data, tf.data.Dataset) else data
    if isinstance(given, (tuple, dict, np.ndarray, tf.Tensor, tf.TensorSpec)):
        _, y, _ = keras.utils.unpack_x_y_sample_weight(given)
        targets.require(model, y, "data")
    with _restored(model), settable_rate(model) as test.set_rate:
        model.fit(
            _endless(data, steps, global_batch_size, seed),
            # An epoch is one execution, so that its loss is of that alone.
            steps_per_epoch=model.steps_per_execution,
            epochs=steps,
            shuffle=False,
            callbacks=[test],
            verbose=0,
        )


def _require_trainable(model: keras.Model) -> None:
    """Builds the optimizer; raises if the model can't be restored."""
    if not isinstance(model, keras.Model):
        raise InputError(
            "find_learning_rate takes the model, then the data. Received: "
            f"model={shown(model)}"
        )
    if not model.compiled or model.optimizer is None or not model.built:
        raise InputError(
            "find_learning_rate trains a model with an optimizer, and restores "
            f"its variables. Received: {model.name!r}, which is not compiled, "
            "or not built; compile it, and fit one step or call it on a batch"
        )
    with model.distribute_strategy.scope():
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
    if not all(each.built for each in training_state.optimizers(model)):
        raise InputError(
            "find_learning_rate restores all optimizers of a model. Received: "
            f"{model.name!r}, of which one is not built; fit one step first"
        )


@contextlib.contextmanager
def _restored(model: keras.Model) -> Iterator[None]:
    """Restores the model and RNG state at the end of the block."""
    strategy = model.distribute_strategy
    history = getattr(model, "history", None)
    saved, pieces = training_state.read(
        model, with_metrics=False, all_workers=workers.count(strategy) > 1
    )
    random = random_state.read()
    try:
        yield
    finally:
        first = workers.is_first(strategy)
        training_state.restore(
            model, saved, lambda index: pieces[index].array, first
        )
        random_state.restore(random)
        with strategy.scope():
            model.reset_metrics()
        model.history, model.stop_training = history, False


def _endless(
    data: Any, steps: int, global_batch_size: int, seed: int
) -> tf.data.Dataset:
    """Returns batches without end."""
    if isinstance(data, tf.data.Dataset):
        if pipelines.making_iterators_matters(data):
            print(
                "note: the data set's shuffle draws a seed for each pass; "
                "training after this test sees another order than without it",
                flush=True,
            )
        return data.repeat()
    if isinstance(data, types.GeneratorType):
        raise InputError(
            "find_learning_rate reads batches that training reads again. "
            "Received: a generator; pass a tf.data.Dataset or a PyDataset"
        )
    if isinstance(data, keras.utils.PyDataset):
        return batches.first_batches(data, steps).repeat()
    size = checked_integer(global_batch_size, "global_batch_size", 1)
    nest = batches.as_nest(data)
    leaves = [leaf for leaf in tf.nest.flatten(nest) if leaf is not None]
    counts = {len(leaf) if np.ndim(leaf) else 0 for leaf in leaves}
    if len(counts) != 1 or 0 in counts:
        raise InputError(
            "data must be arrays with the same number of rows, at least 1, a "
            f"tf.data.Dataset or a PyDataset. Received: {shown(data)}"
        )
    (rows,) = counts
    dataset = tf.data.Dataset.from_tensor_slices(nest).shuffle(rows, seed=seed)
    return dataset.batch(size, drop_remainder=size <= rows).repeat()
