"""One run of a program after one of keras.io's examples."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from benchmarks.exactness import harness
from benchmarks.exactness.keras_io import jobs

BATCH_SIZE = 6
ROWS = 26
"""Four batches of 6 rows and one of 2: all divide on two replicas, so that stock
TensorFlow's mean of means is a mean; on three the last one does not."""


class Run:
    """One run of an example: the devices it trains on, and what it ends with.

    Args:
        strategy: Strategy in whose scope it builds, or `None` for one device.
        partition: Function that makes a hand-written step run on the
            strategy's replicas. Default: `tf.function`.
    """

    def __init__(self, strategy=None, partition=tf.function):
        self._strategy, self._partition = strategy, partition
        self._models, self._before = [], []
        self._history, self._kept = [], {}
        self._witness = harness.Witness()

    def scope(self):
        """Where models, metrics and optimizers are made."""
        if self._strategy is None:
            return contextlib.nullcontext()
        return self._strategy.scope()

    def step(self, function):
        """A training step written by hand, to be called in the scope."""
        return self._partition(function)

    def fit(
        self, model, x, y=None, *, callbacks=(), jit_compile=False, **settings
    ):
        """`model.fit` with small defaults; returns its history."""
        self.watch(model)
        # On one device Keras would have chosen XLA, which takes long.
        model.jit_compile = jit_compile
        if not isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)):
            settings.setdefault("batch_size", BATCH_SIZE)
        settings = {"epochs": 2, "verbose": 0, **settings}
        callbacks = [*callbacks, self._witness]
        history = model.fit(x, y, callbacks=callbacks, **settings).history
        self._history.append(history)
        return history

    def watch(self, model):
        """Has a model's weights compared at the end."""
        if all(model is not other for other in self._models):
            self._models.append(model)
            self._before.append([np.copy(w) for w in model.get_weights()])

    def keep(self, **values):
        """Has results compared: metrics, predictions, losses."""
        self._kept.update(values)

    def job(self, program):
        """Has what a program prints compared; see `jobs.outputs`."""
        starter, count = "alone", 1
        if self._strategy is not None:
            count = self._strategy.num_replicas_in_sync
            stock = type(self._strategy) is tf.distribute.MirroredStrategy
            starter = "stock" if stock else "kerasmgpu"
        printed = jobs.outputs(program, starter, count)
        self._kept.update(printed=[np.array(value) for value in printed])

    def outcome(self):
        """What the run ended with, as `harness.Outcome`."""
        before, weights = [], []
        for model, first in zip(self._models, self._before, strict=True):
            last = model.get_weights()
            # A model that fit builds starts from the same seed in all runs.
            if len(first) != len(last):
                first = [np.zeros_like(weight) for weight in last]
            before += first
            weights += last
        return harness.Outcome(
            before,
            weights,
            self._history,
            [],
            None,
            self._kept,
            False,
            self._witness.spread,
        )


def outcome(case, strategy=None, partition=tf.function):
    """Runs a case from a fixed seed; see `Run` for the other arguments."""
    harness.restart()
    with case.in_precision():
        run = Run(strategy, partition)
        case.make(run)
        return run.outcome()
