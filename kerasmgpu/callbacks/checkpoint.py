"""The `Checkpoint` callback: saves and resumes the whole training state."""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
from absl import logging

from kerasmgpu import _keras
from kerasmgpu._keras import (
    random_state,
    run_settings,
    weight_keys,
    xla_choice,
)
from kerasmgpu._keras.fit import EpochWatcher, Fit
from kerasmgpu.callbacks.checkpoints import (
    found_messages,
    restoring,
    saving,
    snapshot,
)
from kerasmgpu.callbacks.checkpoints.callback_states import CallbackStates
from kerasmgpu.callbacks.checkpoints.folder import file_name
from kerasmgpu.callbacks.checkpoints.notices import Notice
from kerasmgpu.callbacks.checkpoints.schedule import Best, Schedule
from kerasmgpu.callbacks.checkpoints.stopping import Stopping
from kerasmgpu.callbacks.checkpoints.store_folder import folder_at
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_boolean,
    checked_choice,
    checked_integer,
    checked_number,
    shown,
)
from kerasmgpu.job import workers
from kerasmgpu.stores.places import checked_place
from kerasmgpu.stores.store_path import StorePath

_STEPS_BETWEEN_AGREEMENTS = 10
"""Executions between two collectives in which workers agree whether to save."""


class Checkpoint(keras.callbacks.Callback, EpochWatcher):
    """Saves the training state and resumes from it after a restart.

    When the same program is started again, with the same model, data and
    `fit` call, it restores the newest undamaged checkpoint in `directory` and
    continues at the same epoch and step. It ends like an uninterrupted run
    (bit for bit on CPUs with the same number of replicas). If the run had
    already finished, `fit` trains no further, and a line says so, with settings
    that differ from the saved ones. `docs/checkpoints.md` lists what is saved
    and what that means for each kind of data.

    Training waits while the state is copied to host memory; a thread writes
    the file. An error in that thread, such as a full disk, is raised at the
    end of the next step. On SIGTERM the callback finishes the running step,
    saves, and ends the process with exit status 75
    (`kerasmgpu.job.exit_status.EXIT_PREEMPTED`). On Ctrl-C it does the same,
    and raises `KeyboardInterrupt`; a second Ctrl-C ends at once.

    With several workers, only the first one needs access to `directory`, unless
    checkpoints are sharded. Any number of workers and replicas, with any `shard`
    or mesh, resumes from sharded and unsharded checkpoints. The callback's
    position in the list of callbacks doesn't matter.

    Args:
        directory: String or path-like, folder for the checkpoints of this
            `fit` call only; created if missing. Or a URL of an object store,
            such as `"s3://bucket/run1"`; see `docs/checkpoints.md`.
        every_steps: Integer, steps between checkpoints. With neither this nor
            `every_seconds`, a checkpoint is saved at the end of every epoch.
            Defaults to `None`.
        every_seconds: Number, seconds between checkpoints; each is saved at
            the end of a step. The end of training is always saved. Defaults
            to `None`.
        keep: Integer, number of recent checkpoints to keep. Defaults to 3.
        best: String, name of a log such as `"val_loss"`: the epoch with the
            best value so far is saved, and its checkpoint kept until another
            epoch is better. Defaults to `None`.
        mode: `"min"` or `"max"`, which value of `best` is better. Defaults to
            `"min"`.
        resume: Boolean. `False` refuses a directory with checkpoints.
            Defaults to `True`.
        asynchronous: Boolean, whether a thread writes while training goes on,
            from a copy of the state. `False` needs no copy of parts of sharded
            variables. Defaults to `True`.
        data_goes_on: Boolean, whether the data passed to `fit` begin at
            `first_step`; then finished steps' data are not read again.
            Defaults to `False`.
        sharded: Boolean, whether each worker writes its own parts of sharded
            variables into a folder that all workers share. Otherwise the first
            worker gathers and writes all. Defaults to `None`: sharded if
            variables are divided between workers, the state has 1 GiB or more,
            and workers share `directory`.
        notice: Source of preemption notices, handled like SIGTERM: `"google"`,
            `"aws"` or `"azure"`, the cloud's metadata server; a path, whose
            file then appears; or a function that returns the notice's text, or
            `None`. A thread asks every 5 seconds. Defaults to `None`: SIGTERM
            only.

    Attributes:
        seconds_waited: Float, seconds for which training waited in this
            `fit`, for copies and for writes in progress.

    Raises:
        InputError: In the constructor, on invalid arguments; when training
            begins, if the directory can't be written, or holds only damaged
            checkpoints or those of another model, or if no metadata server
            answers; during training, if a checkpoint can't be written.
        SystemExit: With status 75, after SIGTERM or a notice.
        KeyboardInterrupt: After Ctrl-C.

    Example:

    ```python
    keras.utils.set_random_seed(1)
    model = build_and_compile_model()
    checkpoint = kerasmgpu.callbacks.Checkpoint("run1", every_seconds=600)
    model.fit(dataset, epochs=90, callbacks=[checkpoint])
    ```
    """

    @checked_arguments
    def __init__(
        self,
        directory: str | os.PathLike[str] | StorePath,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 3,
        best: str | None = None,
        mode: str = "min",
        resume: bool = True,
        asynchronous: bool = True,
        data_goes_on: bool = False,
        sharded: bool | None = None,
        notice: str | os.PathLike[str] | Callable[[], str | None] | None = None,
    ) -> None:
        super().__init__()
        if every_steps is not None:
            every_steps = checked_integer(every_steps, "every_steps", 1)
        if every_seconds is not None:
            every_seconds = checked_number(every_seconds, "every_seconds")
        mode = checked_choice(mode, "mode", ("min", "max"))
        if sharded is not None and not isinstance(sharded, bool):
            raise InputError(
                f"sharded must be True, False or None. Received: {sharded!r}"
            )
        resume = checked_boolean(resume, "resume")
        asynchronous = checked_boolean(asynchronous, "asynchronous")
        data_goes_on = checked_boolean(data_goes_on, "data_goes_on")
        if best is not None and not isinstance(best, str):
            raise InputError(
                "best must be the name of a log, such as 'val_loss'. Received: "
                f"best={shown(best)}"
            )
        place = checked_place(directory, "directory")
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.best = best
        self.mode = mode
        self.sharded = sharded
        self.data_goes_on = data_goes_on
        self.seconds_waited = 0.0
        self._folder = folder_at(place, checked_integer(keep, "keep", 1))
        self._resumption = restoring.Resumption(
            self._folder, resume, data_goes_on
        )
        self._asynchronous = asynchronous
        self._saver = saving.Saver(self._folder, asynchronous)
        self._stopping = Stopping(None if notice is None else Notice(notice))
        _keras.install()

    def first_step(self, steps_per_epoch: int) -> int:
        """Returns the step, counted over all epochs, where `fit` will resume.

        Use it for data that can begin at any step, such as data whose order
        depends on seed and step only. With several workers, call it in the
        strategy's scope.

        Args:
            steps_per_epoch: Integer, as it will be passed to `fit`.

        Returns:
            Integer; 0 without a checkpoint.

        Raises:
            InputError: As when training begins; also if the checkpoint has
                another number of steps per epoch.

        Example:

        ```python
        checkpoint = Checkpoint("run1", data_goes_on=True)
        model.fit(
            make_endless_dataset(seed=1, first_step=checkpoint.first_step(500)),
            steps_per_epoch=500,
            epochs=90,
            callbacks=[checkpoint],
        )
        ```
        """
        return self._resumption.first_step(steps_per_epoch)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.seconds_waited = 0.0
        self._found: Any = None  # A `restoring.Found`, until restored.
        self._first_epoch: Any = None
        self._data_begin_there = False
        self._random_at_epoch_start: Any = None
        self._executions = 0
        self._is_saved = False
        # Until the first save:
        self._is_sharded: bool | None = None
        self._weights: dict[str, Any] | None = None
        self._best = Best(self.best, self.mode)
        self._schedule = Schedule(self.every_steps, self.every_seconds)
        self._schedule.saved(time.monotonic())
        if not self._stopping.start():
            logging.warning(
                "Checkpoint: fit runs outside the main thread, where Python "
                "handles no signals: SIGTERM will end the process without a "
                "checkpoint."
            )

    # Hooks that Keras lacks; called by `_keras/fit.py`.

    def on_fit_ready(self, fit: Fit) -> None:
        others = [c for c in fit.callbacks if _has_state(c, self)]
        self._callback_states = CallbackStates(others)
        self._settings = run_settings.read(self.model, fit)
        fit.keep_data_states()
        found = self._resumption.found(self.model.distribute_strategy, fit)
        if self.sharded:
            self._name(0, 0)  # Without a shared folder, no step is run.
        if found is None:
            return
        self._found = found
        self._is_saved = True
        fit.build()
        progress, not_finite = self._put_back()
        self._first_epoch = progress.first_epoch
        self._best.value = progress.best
        self._best.file = progress.best_file
        over = progress.stop_training or progress.epoch >= fit.num_epochs
        if over:
            self._restore_random(progress.random)
        fit.begin_at(sys.maxsize if over else progress.epoch)
        path = self._folder.path / found.name
        tell = found_messages.finished if over else found_messages.resuming
        logging.warning(
            "Checkpoint: %s",
            tell(path, progress, fit.num_epochs, self._settings),
        )
        if not_finite:
            before = self._folder.before(found.name)
            logging.warning(
                "Checkpoint: %s",
                found_messages.not_finite(path, not_finite, before),
            )

    def before_epoch(self, fit: Fit) -> None:
        self._schedule.start_epoch(0)
        if self._first_epoch is None:
            self._first_epoch = fit.epoch
        if self._found is not None:
            self._rewind(fit, self._found.progress)
        self._random_at_epoch_start = random_state.read()

    def at_epoch_start(self, fit: Fit) -> None:
        if self._found is None:
            return
        progress = self._found.progress
        if progress.step:
            start = time.monotonic()
            reads = not (self.data_goes_on or self._data_begin_there)
            fit.skip(progress.step, reads, counts=self._data_begin_there)
            _tell_reading(progress.step if reads else 0, start)
            # This epoch's start hooks have run twice; restores the state again.
            self._put_back()
            read_again = fit.data_is_python and reads
            self._restore_random(progress.random, not read_again)
        self._schedule.start_epoch(progress.step)
        self._found = None

    def after_step(self, fit: Fit) -> None:
        self._check_writes()
        self._schedule.count(fit.step)
        self._executions += 1
        several = workers.count(self.model.distribute_strategy) > 1
        agree = not several or self._executions % _STEPS_BETWEEN_AGREEMENTS == 0
        signal = self._signal() if agree else 0
        if signal or self._is_due(agree):
            fit.wait_for_callbacks()
            self._save(fit.epoch, fit.step, fit)
        if signal:
            self._end(signal)

    def after_epoch(self, fit: Fit) -> None:
        self._check_writes()
        self._schedule.count(fit.step + fit.steps_per_execution)
        first = workers.is_first(self.model.distribute_strategy)
        better = self._any(self._best.update(fit.logs) and first)
        signal = self._signal()
        over = self.model.stop_training or fit.epoch + 1 >= fit.num_epochs
        due = self._is_due(agree=True) or self._schedule.every_epoch
        if due or over or signal or better:
            if better:
                self._best.file = self._name(fit.epoch + 1, 0)
            self._save(fit.epoch + 1, 0, fit)
        if signal:
            self._end(signal)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        start = time.monotonic()
        self._check_writes(wait=True)
        self.seconds_waited += time.monotonic() - start
        logging.debug(
            "Checkpoint: training waited %.2f seconds.", self.seconds_waited
        )

    def after_training(self, fit: Fit) -> None:
        signal = self._signal() if self._is_saved else 0
        if signal:
            self._end(signal)

    def on_fit_left(self, fit: Fit) -> None:
        self._found = None
        self._saver.leave()
        self._stopping.stop()

    def _put_back(self) -> tuple[snapshot.Progress, list[str]]:
        """Restores variables, callbacks and `stop_training`.

        Returns the checkpoint's `Progress`, and the variables whose values
        aren't finite; RNG state is left to the caller.
        """
        progress = self._found.progress
        not_finite = self._found.restore_variables(self.model)
        xla_choice.restore(self.model, progress.uses_xla)
        self._callback_states.restore(progress.callbacks)
        self.model.stop_training = progress.stop_training
        return progress, not_finite

    def _restore_random(self, state: Any, python: bool = True) -> None:
        with self.model.distribute_strategy.scope():
            random_state.restore(state, python)

    def _rewind(self, fit: Fit, progress: snapshot.Progress) -> None:
        """Restores the data position and RNG state at the epoch's start.

        Reads earlier epochs' data again, unless the data go on by themselves.
        """
        stream = False
        self._data_begin_there = fit.start_data_at(progress.data)
        begin_there = self._data_begin_there and fit.data_is_one_stream
        if not self.data_goes_on and not begin_there:
            start = time.monotonic()
            epochs = progress.epoch - progress.first_epoch
            _tell_reading(fit.rewind(epochs, progress.num_batches), start)
            # Reading a Python stream again has already advanced Python's RNG.
            stream = fit.data_is_python and fit.data_is_one_stream
        at_start = progress.random_at_epoch_start if progress.step else None
        self._restore_random(at_start or progress.random, not stream)

    def _is_due(self, agree: bool) -> bool:
        """Whether a checkpoint is due by steps or, if `agree`, by time.

        By time, the first worker's clock decides: a collective.
        """
        if self._schedule.steps_are_due():
            return True
        if not agree or self.every_seconds is None:
            return False
        # Clocks differ between workers: the first worker's decides.
        late = self._schedule.seconds_are_due(time.monotonic())
        return self._any(
            late and workers.is_first(self.model.distribute_strategy)
        )

    def _any(self, flag: bool) -> bool:
        return workers.any_of(self.model.distribute_strategy, flag)

    def _name(self, epoch: int, step: int) -> str:
        """Returns a checkpoint's name; the first time, a collective."""
        if self._is_sharded is None:
            self._is_sharded = saving.shall_shard(
                self.model, self.sharded, self._folder.path
            )
        return file_name(epoch, step, self._is_sharded)

    def _save(self, epoch: int, step: int, fit: Fit) -> None:
        """Takes a snapshot on all workers, and begins to write it."""
        start = time.monotonic()
        progress = snapshot.Progress(
            epoch=epoch,
            step=step,
            first_epoch=self._first_epoch,
            num_batches=fit.num_batches,
            stop_training=bool(self.model.stop_training),
            callbacks=self._callback_states.read(),
            random=random_state.read(),
            random_at_epoch_start=self._random_at_epoch_start,
            best=self._best.value,
            best_file=self._best.file,
            steps_per_epoch=fit.steps_per_epoch,
            uses_xla=xla_choice.choice(self.model),
            settings=self._settings,
            data=fit.data_state(self._first_epoch, epoch, step),
        )
        strategy = self.model.distribute_strategy
        name = self._name(epoch, step)
        if self._weights is None:
            self._weights = weight_keys.read(self.model)
        content = snapshot.take(
            self.model,
            progress,
            bool(self._is_sharded),
            self._weights,
            copies=self._asynchronous,
        )
        self._saver.save(strategy, name, content, self._best.file)
        self._is_saved = True
        self._schedule.saved(time.monotonic())
        self.seconds_waited += time.monotonic() - start

    def _check_writes(self, wait: bool = False) -> None:
        """Raises the error of the last write; see `Saver.check`."""
        self._saver.check(self.model.distribute_strategy, wait)

    def _signal(self) -> int:
        """Returns the signal that ends this `fit`, or 0; a collective."""
        return self._stopping.agreed(self.model.distribute_strategy)

    def _end(self, signal: int) -> None:
        self._check_writes(wait=True)
        self._stopping.end(signal, self._folder.path)


def _has_state(
    callback: keras.callbacks.Callback, checkpoint: Checkpoint
) -> bool:
    # The progress bar holds no training state, only what it displays.
    bar = keras.callbacks.ProgbarLogger
    return callback is not checkpoint and not isinstance(callback, bar)


def _tell_reading(num_batches: int, start: float) -> None:
    if num_batches:
        logging.info(
            "Checkpoint: read %d batches again to restore the data position, "
            "%.1f seconds.",
            num_batches,
            time.monotonic() - start,
        )
