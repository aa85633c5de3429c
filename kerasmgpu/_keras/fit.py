"""The `fit` that is running, and what a callback may ask of it and do to it.

A watcher is a callback that must act between steps, after all other callbacks,
or before the first step of an epoch, where Keras has no hook. One that has an
`on_train_batch_end` would make Keras wait for every step's results; the
iterator of the epoch's steps is asked for the next one at the same moment
(`iterators.EpochSteps`). Going to a place in the data needs the parts of Keras's
epoch iterator.
"""

import contextlib
import itertools
import threading

import keras
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from kerasmgpu._keras import build, pipelines
from kerasmgpu._keras.scope import is_ours
from kerasmgpu.errors import InputError


class _Thread(threading.local):
    """The `fit` calls that this thread is in; callbacks may call `fit` too."""

    def __init__(self):
        self.fits = []


_thread = _Thread()


def innermost():
    """The `Fit` that was entered last in this thread, or `None`."""
    return _thread.fits[-1] if _thread.fits else None


@contextlib.contextmanager
def running(model, num_epochs):
    """Enters a model's `fit`; leaves it whatever is raised.

    Args:
        model: The `keras.Model` of which `fit` is called.
        num_epochs: The argument `epochs` of `fit`.
    """
    fit = Fit(model, num_epochs)
    _thread.fits.append(fit)
    try:
        yield fit
    finally:
        _thread.fits.remove(fit)
        fit.left()


class EpochWatcher:
    """What a callback implements to be called by `fit` at these moments.

    All get the running `Fit`.
    """

    def on_fit_ready(self, fit):
        """All callbacks' `on_train_begin` were called."""

    def before_epoch(self, fit):
        """All callbacks' `on_epoch_begin` were called."""

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

    `num_epochs` is the argument `epochs`; `epoch` counts from 0; `step` is the
    number of steps done in it when `after_step` is called; `logs` are those of
    the last epoch that ended.
    """

    def __init__(self, model, num_epochs):
        self.model = model
        self.num_epochs = num_epochs
        self.iterator = None
        self.callback_list = None
        self.watcher = None
        self.epoch = None
        self.step = 0
        self.logs = {}
        self.length_known = None
        self.skipped = 0
        self.private_folder = None  # Both are `writers`' own.
        self.redirected = []
        self._initial_epoch = model._initial_epoch
        self._last = None

    def ready(self):
        """All callbacks' `on_train_begin` were called."""
        self.length_known = self.num_batches is not None
        self._last = _Last(self)
        self.callback_list.callbacks.append(self._last)
        self.watcher.on_fit_ready(self)

    def left(self):
        """`fit` returns, or an exception leaves it."""
        if self.watcher is None:
            return
        # The list may be the user's own, to be used again.
        with contextlib.suppress(ValueError):
            self.callback_list.callbacks.remove(self._last)
        # Keras never resets it: the next `fit` would begin there too.
        self.model._initial_epoch = self._initial_epoch
        self.watcher.on_fit_left(self)

    @property
    def callbacks(self):
        """The callbacks of Keras and of the user."""
        return [c for c in self.callback_list.callbacks if c is not self._last]

    @property
    def num_batches(self):
        """Steps per epoch, `None` while a first pass has not told."""
        return self.iterator._num_batches

    @property
    def steps_per_epoch(self):
        """The argument of `fit`."""
        return self.iterator.steps_per_epoch

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
        return bool(self.steps_per_epoch) or isinstance(
            adapter, GeneratorDataAdapter
        )

    def begin_at(self, epoch):
        """Makes this `fit` begin with `epoch`; from `on_fit_ready`."""
        self.model._initial_epoch = epoch

    def build(self):
        """Creates the variables that are to be restored.

        They are made as the first step makes them: where it is traced.
        """
        data = self.iterator._distributed_dataset
        strategy = self.model._distribute_strategy
        if is_ours(strategy):
            self.model.train_function.prepare(data)
        elif strategy is None:
            build.build_as_first_step(self.model, data.element_spec)

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
        if not self.length_known:
            # The end comes as a surprise: no iterator for more is made.
            iter(iterator._get_iterator())
            iterator._num_batches = num_batches
        elif iterator.source is not None:
            iterator.source.pass_epoch()
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

    def skip(self, num_steps, read=True):
        """Passes over steps that are done; from `at_epoch_start`.

        Args:
            num_steps: Integer, how many.
            read: Boolean, whether their batches are read; `False` for data
                that begin behind them.

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
            if not read:
                # Keras compares it with the batches that the data have.
                self.iterator._steps_seen -= per_execution
                continue
            for _ in range(per_execution):
                if item is None or next(item[-1], None) is None:
                    raise InputError(
                        f"{num_steps} steps of the epoch are done, but the "
                        "data ends before. Call fit with the data of the run "
                        "that is continued"
                    )
        self.step = self.skipped = num_steps

    def advance(self, step):
        """Notes that `step` steps are done, and another follows."""
        if self.skipped < step:
            self.step = step
            self.watcher.after_step(self)


class _Last(keras.callbacks.Callback):
    """Stands behind all callbacks of a `fit` that is watched."""

    def __init__(self, fit):
        super().__init__()
        self._fit = fit

    def on_epoch_begin(self, epoch, logs=None):
        fit = self._fit
        fit.epoch, fit.step, fit.skipped = epoch, 0, 0

    def on_epoch_end(self, epoch, logs=None):
        fit = self._fit
        history = fit.callback_list._history
        fit.logs = {**(logs or {}), **_logs_of_last_epoch(history)}
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
