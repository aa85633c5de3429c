"""Tracks the running `fit`: its state, hooks for watchers, skipping of data.

A watcher is a callback that must act between steps, after all other callbacks,
or before the first step of an epoch, where Keras has no hook. An
`on_train_batch_end` would make Keras wait for every step's results; a watcher
is called instead when the next step is requested from the epoch's iterator
(`iterators.EpochSteps`). Skipping data uses private parts of Keras's epoch
iterator.
"""

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from kerasmgpu._keras import build, timed_callbacks
from kerasmgpu.engine import fit_clock, pipelines
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError


class _Thread(threading.local):
    """Stack of this thread's running `fit`s: callbacks may call `fit` too."""

    def __init__(self) -> None:
        self.fits = []


_thread = _Thread()


def innermost() -> "Fit | None":
    """Returns this thread's innermost running `Fit`, or `None`."""
    return _thread.fits[-1] if _thread.fits else None


@contextlib.contextmanager
def running(model: keras.Model, num_epochs: int) -> Iterator["Fit"]:
    """Yields the `Fit` of a running `fit`; ends it on exceptions, too."""
    with fit_clock.started() as clock:
        fit = Fit(model, num_epochs, clock)
        _thread.fits.append(fit)
        try:
            yield fit
        finally:
            _thread.fits.remove(fit)
            fit.left()


class EpochWatcher:
    """Interface of a callback with additional hooks of `fit`.

    Every hook gets the running `Fit`.
    """

    saves_checkpoints = True
    """Whether the time of its hooks is that of checkpoints."""

    def on_fit_ready(self, fit: "Fit") -> None:
        """Called after all callbacks' `on_train_begin`."""

    def before_epoch(self, fit: "Fit") -> None:
        """Called after all callbacks' `on_epoch_begin`."""

    def at_epoch_start(self, fit: "Fit") -> None:
        """Called before the epoch's data is read; may skip steps."""

    def after_step(self, fit: "Fit") -> None:
        """Called when `fit.step` steps are done and another follows."""

    def after_epoch(self, fit: "Fit") -> None:
        """Called after all callbacks' `on_epoch_end`."""

    def after_training(self, fit: "Fit") -> None:
        """Called after all callbacks' `on_train_end`."""

    def on_fit_left(self, fit: "Fit") -> None:
        """Called when `fit` returns or raises."""


class Fit:
    """One running `fit`: its model, callbacks and progress.

    `num_epochs` is the argument `epochs`; `epoch` counts from 0; `step` is the
    number of steps done in the epoch when `after_step` is called; `logs` are
    those of the last completed epoch; `clock` tells what the time went to.
    """

    def __init__(
        self, model: keras.Model, num_epochs: int, clock: fit_clock.FitClock
    ) -> None:
        self.model = model
        self.num_epochs = num_epochs
        self.clock = clock
        self.iterator: Any = None
        self.callback_list: Any = None
        self.watcher: Any = None
        self.epoch = 0
        self.step = 0
        self.logs: dict[str, Any] = {}
        self.length_known = False
        self.skipped = 0
        # The `grain_states.GrainSource` that is read, if there is one.
        self.grain: Any = None
        # This and the next: used by `writers`.
        self.private_folder: str | None = None
        self.redirected: list[tuple[Any, str, Any]] = []
        self._initial_epoch = model._initial_epoch
        self._last: _Last | None = None

    def ready(self) -> None:
        """Starts watching; called after all callbacks' `on_train_begin`."""
        self.length_known = self.num_batches is not None
        self._last = _Last(self)
        self.callback_list.callbacks.append(self._last)
        self.watcher.on_fit_ready(self)

    def left(self) -> None:
        """Stops watching; called when `fit` returns or raises."""
        if self.callback_list is not None:
            timed_callbacks.end(self.callback_list)
        if self.watcher is None:
            return
        # The user may pass the same `CallbackList` to another `fit`.
        with contextlib.suppress(ValueError):
            self.callback_list.callbacks.remove(self._last)
        # Keras never resets it: the next `fit` would begin at that epoch, too.
        self.model._initial_epoch = self._initial_epoch
        self.watcher.on_fit_left(self)

    @property
    def callbacks(self) -> list[keras.callbacks.Callback]:
        """The callbacks of Keras and of the user."""
        return [c for c in self.callback_list.callbacks if c is not self._last]

    @property
    def num_batches(self) -> int | None:
        """Batches per epoch; `None` until the first epoch has counted them."""
        return self.iterator._num_batches

    @property
    def steps_per_epoch(self) -> int | None:
        """The argument `steps_per_epoch` of `fit`."""
        return self.iterator.steps_per_epoch

    @property
    def batch_size(self) -> int | None:
        """Rows of a batch, if the data adapter knows them."""
        return self.iterator.data_adapter.batch_size

    @property
    def steps_per_execution(self) -> int:
        return self.iterator.steps_per_execution

    @property
    def data_is_python(self) -> bool:
        """Whether the user's Python code makes the batches."""
        return isinstance(
            self.iterator.data_adapter, (PyDatasetAdapter, GeneratorDataAdapter)
        )

    @property
    def data_is_one_stream(self) -> bool:
        """Whether an epoch continues the data where the last one ended."""
        adapter = self.iterator.data_adapter
        return bool(self.steps_per_epoch) or isinstance(
            adapter, GeneratorDataAdapter
        )

    def begin_at(self, epoch: int) -> None:
        """Sets the first epoch of this `fit`; call it from `on_fit_ready`."""
        self.model._initial_epoch = epoch

    def build(self) -> None:
        """Creates the variables to be restored, as the first step would."""
        strategy = self.model._distribute_strategy
        with self.clock.within(fit_clock.TRACING):
            if is_ours(strategy):
                self.model.train_function.prepare(self.iterator.feed)
            elif strategy is None:
                data = self.iterator._distributed_dataset
                build.build_as_first_step(self.model, data.element_spec)

    def wait_for_callbacks(self) -> None:
        """Waits for the hooks that Keras runs in background threads."""
        for future in list(self.callback_list._futures):
            future.result()

    def rewind(self, num_epochs: int, num_batches: int | None) -> int:
        """Advances the data to their state after some epochs.

        Args:
            num_epochs: Integer, number of completed epochs.
            num_batches: `Fit.num_batches` after those epochs.

        Returns:
            Integer, number of batches that were read to do so.
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

    def _pass_epoch(self, num_batches: int | None) -> None:
        """Makes the iterators that Keras makes in an epoch, without reading."""
        iterator = self.iterator
        if not self.length_known:
            # The epoch ends by exhaustion: Keras makes no second iterator.
            iter(iterator._get_iterator())
            iterator._num_batches = num_batches
        elif iterator.source is not None:
            iterator.source.pass_epoch()
        else:
            for _ in iterator._enumerate_iterator():
                pass

    def _read_epoch(self) -> int:
        """Reads an epoch's batches as Keras does; returns their number."""
        iterator, read = self.iterator, 0
        with iterator.catch_stop_iteration():
            for *_, batches in iterator._enumerate_iterator():
                found = itertools.islice(batches, iterator.steps_per_execution)
                num_found = sum(1 for _ in found)
                if num_found == 0:
                    # Keras's step signals an exhausted data set like this.
                    raise StopIteration
                read += num_found
        return read

    def keep_data_states(self) -> None:
        """Keeps what `data_state` returns; call it from `on_fit_ready`."""
        if self.grain is not None:
            self.grain.keeps_states = True
            self.grain.is_one_stream = self.data_is_one_stream

    def data_state(
        self, first_epoch: int, epoch: int, step: int
    ) -> dict[str, Any] | None:
        """Where the data go on after a step, for `start_data_at`.

        Args:
            first_epoch: Integer, first epoch of the run.
            epoch: Integer, the running epoch; between epochs, the next one.
            step: Integer, number of its finished steps.

        Returns:
            Plain data; `None` if they begin anew there, or have no state.
        """
        if self.grain is None:
            return None
        per_epoch, each = self.steps_per_epoch, self.steps_per_execution
        if per_epoch:  # One stream of whole executions.
            step += (epoch - first_epoch) * -(-per_epoch // each) * each
        return self.grain.saved_state(step)

    def start_data_at(self, state: dict[str, Any] | None) -> bool:
        """Lets the data begin at a `data_state`; returns whether they do.

        Call it from `before_epoch`.
        """
        if state is None or self.grain is None:
            return False
        return self.grain.start_at(state)

    def skip(
        self, num_steps: int, read: bool = True, counts: bool = False
    ) -> None:
        """Skips steps that are done; call it from `at_epoch_start`.

        Args:
            read: Boolean, whether to read their batches; `False` for data
                that already begin after them.
            counts: Boolean, whether batches that aren't read count as the
                epoch's.

        Raises:
            InputError: If `num_steps` is no multiple of the steps per
                execution, or if the data have fewer batches.
        """
        per_execution = self.iterator.steps_per_execution
        if num_steps % per_execution:
            raise InputError(
                f"The saved run stopped after {num_steps} steps of an epoch, "
                "which is not a multiple of steps_per_execution. Received: "
                f"steps_per_execution={per_execution}; compile with the saved "
                "run's value"
            )
        for _ in range(0, num_steps, per_execution):
            item = next(self.iterator._epoch_iterator, None)
            if not read:
                # Keras compares it with the number of batches in the data.
                self.iterator._steps_seen -= 0 if counts else per_execution
                continue
            for _ in range(per_execution):
                if item is None or next(item[-1], None) is None:
                    raise InputError(
                        f"The saved run stopped after {num_steps} steps of an "
                        "epoch, and the data has fewer batches. Call fit with "
                        "the saved run's data, in batches of its size"
                    )
        self.step = self.skipped = num_steps

    def advance(self, step: int) -> None:
        """Records that `step` steps are done, and calls the watcher.

        Does nothing while the steps are among those that were skipped.
        """
        if self.skipped < step:
            self.step = step
            self.watcher.after_step(self)


class _Last(keras.callbacks.Callback):
    """The last callback of a watched `fit`: calls the watcher's hooks."""

    saves_checkpoints = True

    def __init__(self, fit: Fit) -> None:
        super().__init__()
        self._fit = fit

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        fit = self._fit
        fit.epoch, fit.step, fit.skipped = epoch, 0, 0

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        fit = self._fit
        history = fit.callback_list._history
        fit.logs = {**(logs or {}), **_logs_of_last_epoch(history)}
        fit.watcher.after_epoch(fit)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._fit.watcher.after_training(self._fit)


def _logs_of_last_epoch(
    history: keras.callbacks.History | None,
) -> dict[str, Any]:
    """Returns the last epoch's logs, with those that callbacks added.

    Includes only logs that every epoch has: the last value of any other log may
    be from an earlier epoch.
    """
    if history is None:
        return {}
    num_epochs = len(history.epoch)
    return {
        name: values[-1]
        for name, values in history.history.items()
        if len(values) == num_epochs
    }
