"""What the processes of a check do with the user's model, stage by stage."""

import contextlib
import functools
import gc
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu import distances
from kerasmgpu._keras import sharded_parts
from kerasmgpu.callbacks import Checkpoint, NotFinite
from kerasmgpu.check.stage_record import StageRecord
from kerasmgpu.commands import batches, references, user_models
from kerasmgpu.engine.devices import leave_room, num_logical
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster, workers
from kerasmgpu.strategies.layouts import mesh_of
from kerasmgpu.strategies.noted_distributions import noted
from kerasmgpu.verify import training
from kerasmgpu.verify.outcome import load_arrays, save_arrays

_LOGICAL_DEVICES = 2  # Where there is no GPU.
_FLAG = "--num_replicas or --virtual_devices"
_MODEL, _PREDICTIONS, _CHECKPOINTS = "model.keras", "after.npz", "checkpoints"


def run(job: dict[str, Any], record: StageRecord) -> None:
    """Trains, or resumes what an earlier process has trained.

    Args:
        record: `StageRecord` of this process, which is starting TensorFlow.
    """
    if cluster.from_environment() is None:
        leave_room()
    strategy = None if job["on_one_device"] else _strategy(job["strategy"])
    replicas = strategy.num_replicas_in_sync if strategy else 1
    num_workers = workers.count(strategy) if strategy else 1
    record.tell(replicas=replicas, workers=num_workers)
    record.enter("import")
    run_of_part = _resume if job["resumes"] else _train
    run_of_part(_Program(job, record, strategy))


def _strategy(arguments: dict[str, Any]) -> tf.distribute.Strategy:
    has_gpus = bool(tf.config.list_physical_devices("GPU"))
    if not has_gpus and cluster.from_environment() is None:
        arguments["virtual_devices"] = (
            arguments["virtual_devices"]
            or arguments["num_replicas"]
            or _LOGICAL_DEVICES
        )
    return kerasmgpu.strategy(**arguments)


def _all_devices(job: dict[str, Any]) -> tuple[int, str]:
    """Returns the number and kind of the devices of the job's strategy."""
    settings, kind = job["strategy"], "GPU"
    number = settings["virtual_devices"] or settings["num_replicas"]
    own = num_logical(kind)
    if settings["virtual_devices"] or not own:
        kind, own = "CPU", 1 if job["workers"] > 1 else _LOGICAL_DEVICES
    return job["workers"] * (number or own), kind


class _Program:
    """The user's functions, under a strategy or on one device.

    Args:
        strategy: The `tf.distribute.Strategy`, or `None` for stock Keras.

    Attributes:
        strategy: That of the model, whose program may set a
            `keras.distribution`.
        module: The module of `build`, imported by that.
    """

    def __init__(
        self,
        job: dict[str, Any],
        record: StageRecord,
        strategy: tf.distribute.Strategy | None,
    ) -> None:
        self.job, self.record, self.strategy = job, record, strategy
        # Of all processes on these devices.
        self.folder = pathlib.Path(job["files"])

    def scope(self) -> Any:
        """Context of the strategy."""
        if self.strategy is None:
            return contextlib.nullcontext()
        return self.strategy.scope()

    def build(
        self, tell: Callable[[str], None] = lambda stage: None
    ) -> tuple[keras.Model, tf.data.Dataset]:
        """Returns a new compiled model, and its first batches."""
        job, name = self.job, self.job["build"]
        with contextlib.ExitStack() as stack:
            if self.strategy is not None:
                stack.enter_context(
                    user_models.scope(self.strategy, name, _FLAG)
                )
            else:
                note = stack.enter_context(noted(*_all_devices(job)))
                stack.enter_context(
                    user_models.naming_devices(name, note.listed, _FLAG)
                )
            self.module = references.load(name)
            keras.utils.set_random_seed(job["seed"])
            model, data = user_models.model_and_data(
                self.module, name, job["data"], tell
            )
            dataset = batches.first_batches(
                data, job["steps"], job["global_batch_size"]
            )
        if self.strategy is not None:
            self.strategy = user_models.strategy_of(model, self.strategy)
            self.record.tell(
                replicas=self.strategy.num_replicas_in_sync,
                mesh=mesh_of(self.strategy.distribution),
            )
        # Training draws the same numbers however many build() drew.
        keras.utils.set_random_seed(job["seed"])
        return model, dataset

    def fit(
        self,
        model: keras.Model,
        dataset: tf.data.Dataset,
        epochs: int,
        callbacks: list[keras.callbacks.Callback],
    ) -> list[float]:
        """Trains with a checkpoint per epoch; returns each one's loss, or first log."""
        checkpoint = Checkpoint(self.folder / _CHECKPOINTS)
        history = model.fit(
            dataset,
            epochs=epochs,
            verbose=0,
            shuffle=False,
            callbacks=[*callbacks, checkpoint],
        ).history
        logs = history.get("loss") or next(iter(history.values()), [])
        return [float(np.mean(value)) for value in logs]

    def attempt(self, stage: str, work: Callable[[], Any]) -> bool:
        """Runs a stage that later ones don't need; returns whether it worked.

        In a job of several workers a failure ends this one, since the others
        would wait for it in the next stage.
        """
        self.record.enter(stage)
        try:
            work()
        except Exception as error:
            if self.strategy and workers.count(self.strategy) > 1:
                raise
            self.record.end(error)
            return False
        self.record.end()
        return True


class _Steps(keras.callbacks.Callback):
    """Makes each step a stage.

    Args:
        record: `StageRecord`, in which the first step is running.
    """

    def __init__(self, record: StageRecord, count: int) -> None:
        super().__init__()
        self._record = record
        self._count = count

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        is_last = batch + 1 == self._count
        self._record.enter("checkpoint" if is_last else f"step {batch + 2}")


def _train(program: _Program) -> None:
    record = program.record
    model, dataset = program.build(record.enter)
    count = sum(1 for _ in dataset)
    if count == 0:
        raise InputError("the data are empty; at least one batch is needed")
    record.enter("step 1")
    callbacks = [_Steps(record, count), NotFinite()]
    losses = program.fit(model, dataset, 1, callbacks)
    record.end()
    strategy = program.strategy
    unsharded = strategy and sharded_parts.why_none(model, strategy)
    record.tell(losses=losses, unsharded=unsharded)
    if training.can_evaluate(model):
        evaluate = functools.partial(model.evaluate, dataset, verbose=0)
        program.attempt("evaluate", evaluate)
    if training.has_call(model):
        predict = functools.partial(model.predict, dataset, verbose=0)
        program.attempt("predict", predict)
    path = program.folder / _MODEL
    if program.attempt("save", lambda: model.save(path)):
        record.tell(bytes=path.stat().st_size if path.exists() else 0)
        _keep_predictions(program, model, dataset)


def _keep_predictions(
    program: _Program, model: keras.Model, dataset: tf.data.Dataset
) -> None:
    """Predicts from the state that the file has, of seeds for instance."""
    if training.has_call(model):
        with contextlib.suppress(Exception):  # `predict` has failed already.
            found = model.predict(dataset.take(1), verbose=0)
            save_arrays(program.folder / _PREDICTIONS, tf.nest.flatten(found))


def _resume(program: _Program) -> None:
    record = program.record
    model, dataset = program.build()
    if program.job["is_saved"]:
        program.attempt("load", lambda: _load(program, dataset))
        gc.collect()  # It needs no memory any more.
    record.enter("resume")
    begun = _BegunEpochs()
    program.fit(model, dataset, 2, [begun])
    if begun.epochs != [1]:
        raise InputError(
            "fit began anew instead of resuming from the checkpoint of its "
            f"first epoch. Received: epochs {begun.epochs}, from 0"
        )


class _BegunEpochs(keras.callbacks.Callback):
    """Notes the epochs that are run."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self.epochs.append(epoch)


def _load(program: _Program, dataset: tf.data.Dataset) -> None:
    """Loads the saved model, and compares what it predicts."""
    path = program.folder / _MODEL
    if program.strategy and workers.count(program.strategy) > 1:
        # Only the first worker's machine has the file.
        data = path.read_bytes() if path.exists() else b""
        path.write_bytes(workers.broadcast(program.strategy, data))
    # A program that loads its model has its own classes at hand.
    own = {k: v for k, v in vars(program.module).items() if callable(v)}
    with program.scope():
        loaded = keras.models.load_model(path, custom_objects=own)
    kept = program.folder / _PREDICTIONS
    if not kept.exists():
        return
    found = loaded.predict(dataset.take(1), verbose=0)
    limit = distances.TOLERANCES[distances.dtype_of(loaded)]
    for one, again in zip(load_arrays(kept), tf.nest.flatten(found)):
        distance = distances.relative_difference(one, again)
        if distance > limit:
            raise InputError(
                f"the loaded model predicts otherwise: by {distance:.1e}, where "
                f"{limit:.0e} is rounding. Something that predictions depend "
                "on is not saved, or is drawn without a seed"
            )
