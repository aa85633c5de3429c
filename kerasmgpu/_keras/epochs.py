"""The epochs of `fit`: where they are, and how to begin in the middle of one.

A watcher is a callback that must act between steps, after all other callbacks,
or before the first step of an epoch, where Keras has no hook. One that has an
`on_train_batch_end` would make Keras wait for every step's results; the
iterator of the epoch's steps is asked for the next one at the same moment.
"""

import threading

from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)
from keras.src.callbacks.callback_list import CallbackList
from keras.src.trainers.trainer import Trainer

from kerasmgpu._keras import epoch_iterators
from kerasmgpu._keras.fit import EpochWatcher, Fit
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam
from kerasmgpu.errors import InputError


class _Running(threading.local):
    """The `fit` calls that this thread is in; callbacks may call `fit` too."""

    def __init__(self):
        self.fits = []

    def watched(self, **parts):
        """The innermost `fit`, if it is watched and has these parts."""
        fit = self.fits[-1] if self.fits else None
        if fit is None or fit.watcher is None:
            return None
        same = all(getattr(fit, name) is part for name, part in parts.items())
        return fit if same else None


_running = _Running()


@seam(TensorFlowTrainer, "fit")
def _fit(original, self, *args, **kwargs):
    fit = Fit(self)
    _running.fits.append(fit)
    try:
        return original(self, *args, **kwargs)
    finally:
        _running.fits.remove(fit)
        if fit.watcher is not None:
            # Keras never resets it: the next `fit` would begin there too.
            self._initial_epoch = fit.initial_epoch
            fit.watcher.on_fit_left(fit)


@seam(TFEpochIterator, "__init__")
def _init_iterator(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    fit = _running.fits[-1] if _running.fits else None
    # The first one that `fit` makes is that of the training data.
    if fit is not None and fit.iterator is None:
        fit.iterator = self
    epoch_iterators.attach(self)


@seam(CallbackList, "on_train_begin")
def _on_train_begin(original, self, logs=None):
    strategy = getattr(self._model, "_distribute_strategy", None)
    if not is_ours(strategy):
        return _begin(original, self, logs)
    # Callbacks that restore a model make variables that it lacks as yet.
    with strategy.scope():
        return _begin(original, self, logs)


def _begin(original, self, logs):
    fit = _running.fits[-1] if _running.fits else None
    watchers = [c for c in self.callbacks if isinstance(c, EpochWatcher)]
    if fit is None or fit.callback_list is not None or not watchers:
        return original(self, logs)
    if len(watchers) > 1:
        names = ", ".join(type(watcher).__name__ for watcher in watchers)
        raise InputError(
            "One fit takes one callback that resumes it. Received: "
            f"callbacks={names}"
        )
    fit.callback_list = self
    (fit.watcher,) = watchers
    fit.length_known = fit.num_batches is not None
    original(self, logs)
    fit.watcher.on_fit_ready(fit)


@seam(CallbackList, "on_epoch_begin")
def _on_epoch_begin(original, self, epoch, logs=None):
    fit = _running.watched(callback_list=self)
    if fit is not None:
        fit.epoch, fit.step, fit.skipped = epoch, 0, 0
    original(self, epoch, logs)


@seam(CallbackList, "on_epoch_end")
def _on_epoch_end(original, self, epoch, logs=None):
    original(self, epoch, logs)
    fit = _running.watched(callback_list=self)
    if fit is not None:
        fit.logs = {**(logs or {}), **_logs_of_last_epoch(self._history)}
        fit.watcher.after_epoch(fit)


def _logs_of_last_epoch(history):
    """Logs that every epoch had, those that callbacks added among them."""
    if history is None:
        return {}
    num_epochs = len(history.epoch)
    return {
        name: values[-1]
        for name, values in history.history.items()
        if len(values) == num_epochs
    }


@seam(TFEpochIterator, "__iter__")
def _iterate(original, self):
    fit = _running.watched(iterator=self)
    if fit is None:
        return original(self)
    fit.watcher.before_epoch(fit)
    steps = original(self)
    fit.watcher.at_epoch_start(fit)
    return steps


@seam(TFEpochIterator, "__next__")
def _next_step(original, self):
    # At the end of the epoch this raises: what follows the last step is
    # `after_epoch`.
    item = original(self)
    fit = _running.watched(iterator=self)
    if fit is not None:
        fit.advance(item[0])
    return item


@seam(Trainer, "_get_metrics_result_or_logs")
def _metrics_or_logs(original, self, logs):
    fit = _running.fits[-1] if _running.fits else None
    if not logs and fit is not None and fit.model is self and fit.skipped:
        # All steps of the epoch were skipped: only now the data set, whose
        # length is not known, said so. The metrics hold the epoch.
        logs = self.get_metrics_result()
    return original(self, logs)
