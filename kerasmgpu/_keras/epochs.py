"""The epochs of `fit`: where they are, and how to begin in the middle of one.

A watcher is a callback that must act between steps, after all other callbacks,
or before the first step of an epoch, where Keras has no hook. One that has an
`on_train_batch_end` would make Keras wait for every step's results; the
iterator of the epoch's steps is asked for the next one at the same moment.
"""

import itertools
import threading

import keras
from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)
from keras.src.callbacks.callback_list import CallbackList
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.trainers.trainer import Trainer

from kerasmgpu._keras import build, pipelines
from kerasmgpu._keras.seams import seam
from kerasmgpu.errors import InputError


class EpochWatcher:
    """What a callback implements to be called by `fit` at these moments.

    All get the running `Fit`.
    """

    def on_fit_ready(self, fit):
        """All callbacks' `on_train_begin` were called."""

    def before_epoch(self, fit):
        """All callbacks' `on_epoch_begin` were called; no data was asked for."""

    def at_epoch_start(self, fit):
        """The epoch's data is about to be read; steps may be skipped."""

    def after_step(self, fit):
        """`fit.step` steps are done, and another follows."""

    def after_epoch(self, fit):
        """All callbacks' `on_epoch_end` were called."""

    def on_fit_left(self, fit):
        """`fit` returns, or an exception leaves it."""


class Fit:
    """One running `fit`: its model, callbacks and place.

    `epoch` counts from 0; `step` is the number of steps done in it when
    `after_step` is called; `logs` are those of the last epoch that ended.
    """

    def __init__(self, model):
        self.model = model
        self.iterator = None
        self.callback_list = None
        self.watcher = None
        self.epoch = None
        self.step = 0
        self.logs = {}
        self._length_known = None
        self._skipped = 0
        self._initial_epoch = model._initial_epoch

    @property
    def callbacks(self):
        return self.callback_list.callbacks

    @property
    def num_epochs(self):
        """The argument `epochs` of `fit`."""
        return self.callback_list.params["epochs"]

    @property
    def num_batches(self):
        """Steps per epoch, `None` while a first pass has not told."""
        return self.iterator._num_batches

    @property
    def steps_per_execution(self):
        return self.iterator.steps_per_execution

    @property
    def data_is_python(self):
        """Whether Python code of the user's makes the batches."""
        return isinstance(
            self.iterator.data_adapter, (PyDatasetAdapter, GeneratorDataAdapter)
        )

    @property
    def data_is_one_stream(self):
        """Whether an epoch goes on in the data where the one before ended."""
        adapter = self.iterator.data_adapter
        return bool(self.iterator.steps_per_epoch) or isinstance(
            adapter, GeneratorDataAdapter
        )

    def begin_at(self, epoch):
        """Makes this `fit` begin with `epoch`; from `on_fit_ready`."""
        self.model._initial_epoch = epoch

    def build(self):
        """Creates the variables that are to be restored.

        Without a strategy Keras leaves that to the first step. A model that
        can't be called (a GAN, say) has its parts built by its author.
        """
        callable_model = type(self.model).call is not keras.Model.call
        if self.model._distribute_strategy is None and callable_model:
            data = self.iterator._distributed_dataset
            build.build(self.model, data.element_spec)

    def wait_for_callbacks(self):
        """Waits for the hooks that Keras runs in threads of its own."""
        for future in list(self.callback_list._futures):
            future.result()

    def rewind(self, num_epochs, num_batches):
        """Brings the data to where it is after some epochs.

        Args:
            num_epochs: Integer, epochs that are done.
            num_batches: `Fit.num_batches` as it was then.

        Returns:
            Number of batches that had to be read for that.
        """
        adapter = self.iterator.data_adapter
        if self.data_is_one_stream:
            return sum(self._read_epoch() for _ in range(num_epochs))
        if isinstance(adapter, PyDatasetAdapter):
            for _ in range(num_epochs):
                adapter.py_dataset.on_epoch_begin()
                adapter.py_dataset.on_epoch_end()
            return 0
        if isinstance(
            adapter, TFDatasetAdapter
        ) and not pipelines.making_iterators_suffices(adapter._dataset):
            return sum(self._read_epoch() for _ in range(num_epochs))
        for _ in range(num_epochs):
            self._pass_epoch(num_batches)
        return 0

    def _pass_epoch(self, num_batches):
        """Makes the iterators that Keras makes in an epoch; reads nothing."""
        iterator = self.iterator
        if not self._length_known:
            # The end comes as a surprise: no iterator for more is made.
            iter(iterator._get_iterator())
            iterator._num_batches = num_batches
        else:
            for _ in iterator._enumerate_iterator():
                pass

    def _read_epoch(self):
        """Goes through the data of an epoch as Keras does, without steps."""
        iterator, read = self.iterator, 0
        with iterator.catch_stop_iteration():
            for *_, batches in iterator._enumerate_iterator():
                found = itertools.islice(batches, iterator.steps_per_execution)
                num_found = sum(1 for _ in found)
                if num_found == 0:
                    # How Keras's step tells the end of a data set.
                    raise StopIteration
                read += num_found
        return read

    def skip(self, num_steps):
        """Reads the batches of steps that are done; from `at_epoch_start`.

        Raises:
            InputError: If the steps per execution don't fit, or if the data
                ends before.
        """
        per_execution = self.iterator.steps_per_execution
        if num_steps % per_execution:
            raise InputError(
                f"{num_steps} steps of the epoch are done, which is no "
                "multiple of steps_per_execution. Received: "
                f"steps_per_execution={per_execution}; compile with the value "
                "of the run that is continued"
            )
        for _ in range(0, num_steps, per_execution):
            item = next(self.iterator._epoch_iterator, None)
            for _ in range(per_execution):
                if item is None or next(item[-1], None) is None:
                    raise InputError(
                        f"{num_steps} steps of the epoch are done, but the "
                        "data ends before. Call fit with the data of the run "
                        "that is continued"
                    )
        self.step = self._skipped = num_steps

    def _advance(self, step):
        """Notes that `step` steps are done, and another follows."""
        if self._skipped < step:
            self.step = step
            self.watcher.after_step(self)


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
        # Keras never resets it, and the next `fit` would begin there too.
        self._initial_epoch = fit._initial_epoch
        if fit.watcher is not None:
            fit.watcher.on_fit_left(fit)


@seam(TFEpochIterator, "__init__")
def _init_iterator(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    # The first one that `fit` makes is that of the training data.
    if _running.fits and _running.fits[-1].iterator is None:
        _running.fits[-1].iterator = self


@seam(CallbackList, "on_train_begin")
def _on_train_begin(original, self, logs=None):
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
    fit._length_known = fit.num_batches is not None
    original(self, logs)
    fit.watcher.on_fit_ready(fit)


@seam(CallbackList, "on_epoch_begin")
def _on_epoch_begin(original, self, epoch, logs=None):
    fit = _running.watched(callback_list=self)
    if fit is not None:
        fit.epoch, fit.step, fit._skipped = epoch, 0, 0
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
        fit._advance(item[0])
    return item


@seam(Trainer, "_get_metrics_result_or_logs")
def _metrics_or_logs(original, self, logs):
    fit = _running.fits[-1] if _running.fits else None
    if not logs and fit is not None and fit.model is self and fit._skipped:
        # All steps of the epoch were skipped: only now the data set, whose
        # length is not known, said so. The metrics hold the epoch.
        logs = self.get_metrics_result()
    return original(self, logs)
