"""Setup, callbacks and results of a recipe, around its `fit`.

experiment = TrainingRun(settings)  # opens the folder, starts the devices
plan = experiment.plan_for(num_rows)  # global batch, learning rate, length
experiment.begin(description)  # prints the data and the sizes
with experiment.strategy.scope():
    model = build_model(...)
model.fit(
    training_data,  # from `experiment.first_step` on
    **experiment.fit_settings({"loss": "loss"}),
)
return experiment.finish(model, "loss", "loss", figures)
"""

import dataclasses
import inspect
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

import kerasmgpu
from kerasmgpu import _keras
from kerasmgpu import callbacks as kerasmgpu_callbacks
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import run_folder, run_report, training_plan
from kerasmgpu.stores.places import place

Record = dict[str, Any]


def make_strategy(
    settings: SimpleNamespace, **keywords: Any
) -> tf.distribute.Strategy:
    """The `kerasmgpu.strategy` that the flags select; `keywords` override them."""
    known = inspect.signature(kerasmgpu.strategy).parameters
    asked = {k: v for k, v in vars(settings).items() if k in known}
    return kerasmgpu.strategy(**asked | keywords)


class EpochRecords(keras.callbacks.Callback):
    """Keeps each epoch's logs in `history`.

    `kerasmgpu.callbacks.Checkpoint` saves and restores `history`: a resumed
    run has all records. A record has `"epoch"` (from 1), `"seconds"` (of the
    epoch's steps at the rate that `ThroughputLogger` measured, without tracing
    and validation) and the logs; `None` stands for NaN and infinity.
    """

    def __init__(self, steps_per_epoch: int) -> None:
        super().__init__()
        self._steps_per_epoch = steps_per_epoch
        self.history: list[Record] = []

    def on_epoch_end(self, epoch: int, logs: Record | None = None) -> None:
        figures = {
            name: float(value) if math.isfinite(value) else None
            for name, value in (logs or {}).items()
        }
        if figures["loss"] is None:
            raise InputError(
                f"The loss is no longer finite after epoch {epoch + 1}; lower "
                "the learning rate or warm it up for longer. --check_finite "
                "names the first step and layer"
            )
        rate = figures.get("steps_per_second")
        # An epoch whose only step was traced has no rate.
        seconds = self._steps_per_epoch / rate if rate else 0.0
        self.history.append({"epoch": epoch + 1, "seconds": seconds, **figures})


class TrainingRun:
    """One run of a recipe, from its settings to its result.

    Of several workers only the first writes and prints. Checkpoints are those
    of `kerasmgpu.callbacks.Checkpoint`: after every epoch, and after the
    running step on SIGTERM. The default `strategy` is `make_strategy`'s, and
    `devices` and `num_replicas` default to the strategy's. `first_step` is 0;
    `begin` sets it to the step of the last checkpoint.
    """

    def __init__(
        self,
        settings: SimpleNamespace,
        strategy: tf.distribute.Strategy | None = None,
        devices: Sequence[str] | None = None,
        num_replicas: int | None = None,
    ) -> None:
        # A recipe's callbacks are made in its call of `fit`, which Python looks
        # up before it makes them.
        _keras.install()
        self._settings = settings
        self._is_first_worker = cluster.is_first_worker()
        # An unusable folder is refused before a device is started.
        self.folder = run_folder.RunFolder(
            settings.output_dir if self._is_first_worker else None, settings
        )
        self.strategy = strategy or make_strategy(settings)
        self.devices = list(devices or run_report.short_names(self.strategy))
        self.num_replicas = num_replicas or self.strategy.num_replicas_in_sync
        self.plan: training_plan.TrainingPlan
        self._checkpoint: kerasmgpu_callbacks.Checkpoint | bool = False
        self.first_step = 0

    @property
    def history(self) -> list[Record]:
        """Records of all epochs, once `fit` has ended."""
        return self._records.history

    def plan_for(self, num_rows: int) -> training_plan.TrainingPlan:
        """Derives the `TrainingPlan` for a number of rows; keeps it as `plan`."""
        replicas = self.num_replicas
        self.plan = training_plan.make(self._settings, replicas, num_rows)
        return self.plan

    def begin(self, description: str, data_goes_on: bool = True) -> None:
        """Prints data and sizes; finds the last checkpoint; keeps the flags.

        `data_goes_on` is that of `kerasmgpu.callbacks.Checkpoint`: whether the
        data that `fit` gets begin at `first_step`.
        """
        self._data = description
        self.folder.start()
        if self._settings.output_dir is not None:
            self._checkpoint = kerasmgpu_callbacks.Checkpoint(
                place(self._settings.output_dir) / "checkpoints",
                data_goes_on=data_goes_on,
            )
            per_epoch = self.plan.steps_per_epoch
            with self.strategy.scope():
                self.first_step = self._checkpoint.first_step(per_epoch)
        self.folder.keep_flags()
        if self._is_first_worker:
            run_report.print_line(description)
            run_report.print_line(self.plan.describe(self.devices))

    def fit_settings(
        self,
        progress: Mapping[str, str],
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> dict[str, Any]:
        """Keywords of `fit`: its length, and callbacks that measure and save.

        `progress` maps names in the logs to the labels that are printed; what
        `callbacks` add to the logs is recorded.
        """
        plan, settings = self.plan, self._settings
        self._records = EpochRecords(plan.steps_per_epoch)
        return {
            "epochs": plan.epochs,
            "steps_per_epoch": plan.steps_per_epoch,
            "shuffle": False,  # The order of the rows is the data set's.
            "verbose": 0,  # `Progress` prints instead of Keras.
            "callbacks": kerasmgpu_callbacks.default(
                settings.output_dir,
                extra=[*callbacks, self._records],
                progress={"logs": progress},
                monitors=self._monitors(),
                hang_watch={"hang_seconds": settings.hang_seconds},
                not_finite=settings.check_finite,
                checkpoint=self._checkpoint,
            ),
        }

    def _monitors(self) -> dict[str, Any] | bool:
        """What is asked of `kerasmgpu.callbacks.Monitors`."""
        if not (self._settings.tensorboard or self._settings.profile):
            return False
        return {
            "norms": "global" if is_ours(self.strategy) else None,
            "profile_steps": self._settings.profile,
        }

    def finish(
        self,
        model: keras.Model,
        loss: str,
        loss_label: str,
        figures: Mapping[str, tuple[str, Any]],
        curve: run_report.Curve,
        notes: Mapping[str, str] | None = None,
    ) -> run_report.Result:
        """Writes model, learning curve and result; prints the final table.

        `loss` is the name in the logs of the loss to report. `figures` are the
        recipe's own: names in `result.json` to `(label, value)`; `notes`, by
        the same names, say why one looks wrong.
        """
        speed = run_report.median_of(self.history, "examples_per_second")
        result = run_report.Result(
            replicas=self.num_replicas,
            devices=self.devices,
            global_batch_size=self.plan.global_batch_size,
            learning_rate=self.plan.learning_rate,
            # Fewer than planned where a callback ended the training.
            steps=len(self.history) * self.plan.steps_per_epoch,
            seconds=sum(record["seconds"] for record in self.history),
            loss=self.history[-1][loss],
            examples_per_second=speed,
            examples_per_second_per_replica=speed and speed / self.num_replicas,
            data=self._data,
            figures={name: value for name, (_, value) in figures.items()},
        )
        if self.folder.path is not None:
            with self.folder.complete("model.keras") as temporary:
                model.save(temporary)
            run_report.draw_learning_curve(self.folder, self.history, curve)
            self.folder.write_json("result.json", dataclasses.asdict(result))
        if self._is_first_worker:
            labels = {name: label for name, (label, _) in figures.items()}
            run_report.print_table(result, loss_label, labels, notes)
        return result
