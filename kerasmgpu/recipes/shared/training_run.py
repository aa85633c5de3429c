"""What every recipe does around its own model and data.

    experiment = TrainingRun(settings)  # opens the folder, starts the devices
    data = load_data(settings)
    plan = training_plan.make(settings, experiment.num_replicas, num_rows)
    experiment.begin(data.description, plan)  # says what is about to happen
    model = experiment.build(build_model, settings, data, plan)
    training = make_data(experiment.first_step)  # where the run goes on
    experiment.fit(model, training, validation, {"loss": "loss"})
    return experiment.finish(model, loss, "loss", figures)

Checkpoints are those of `kerasmgpu.callbacks.Checkpoint`: after every epoch,
and after the running step on SIGTERM.
"""

import dataclasses
import pathlib

import kerasmgpu
from kerasmgpu import callbacks as kerasmgpu_callbacks
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import epoch_records, run_folder, run_report

_STRATEGY_FLAGS = (
    "num_replicas",
    "virtual_devices",
    "all_reduce",
    "num_packs",
    "batch_norm",
)


def make_strategy(settings, **keywords):
    """The strategy that the flags ask for; see `kerasmgpu.strategy`.

    Args:
        settings: The recipe's settings.
        **keywords: What the strategy gets in place of flags, or beside them.
    """
    asked = {k: v for k, v in vars(settings).items() if k in _STRATEGY_FLAGS}
    return kerasmgpu.strategy(**asked | keywords)


class TrainingRun:
    """One run of a recipe, from its settings to its result.

    Args:
        settings: The recipe's settings, with those of
            `shared_flags.define_devices` and `shared_flags.define_output`.
        strategy: `tf.distribute.Strategy` to train under. Defaults to that of
            `make_strategy`.
        devices: List of the names of the devices that work. Defaults to those
            of the strategy.
        num_replicas: Copies of the model. Defaults to those of the strategy.

    Raises:
        InputError: If the output folder or the devices can't be had.

    Attributes:
        folder: The `RunFolder`.
        history: List of the records of all epochs, once `fit` has ended.
        plan: The `TrainingPlan`, once it has begun.
        first_step: Step that training goes on with, once it has begun: 0, or
            what the last checkpoint says.
    """

    def __init__(
        self, settings, strategy=None, devices=None, num_replicas=None
    ):
        self._is_first_worker = cluster.is_first_worker()
        # A folder that can't be used is told before a device is started. Of
        # several workers only the first writes and speaks.
        self.folder = run_folder.RunFolder(
            settings.output_dir if self._is_first_worker else None, settings
        )
        self.strategy = strategy or make_strategy(settings)
        self.devices = devices or run_report.short_names(self.strategy)
        self.num_replicas = num_replicas or self.strategy.num_replicas_in_sync
        self._output_dir = settings.output_dir
        self._checkpoints = []
        self.plan = None
        self.first_step = 0
        self.history = []

    def begin(self, description, plan, data_goes_on=True):
        """Prints what is about to be trained, and on what; keeps the flags.

        Args:
            description: One line that says what the data are.
            plan: `TrainingPlan`.
            data_goes_on: See `kerasmgpu.callbacks.Checkpoint`. Defaults to
                `True`: the data that `fit` gets begin at `first_step`.

        Raises:
            InputError: If the run that is to go on had epochs of another
                length, or if none of its checkpoints is whole.
        """
        self.plan = plan
        self._data = description
        self.folder.start()
        if self._output_dir is not None:
            checkpoint = kerasmgpu_callbacks.Checkpoint(
                pathlib.Path(self._output_dir, "checkpoints"),
                data_goes_on=data_goes_on,
            )
            with self.strategy.scope():
                self.first_step = checkpoint.first_step(plan.steps_per_epoch)
            self._checkpoints = [checkpoint]
        self.folder.keep_flags()
        if self._is_first_worker:
            run_report.print_line(description)
            run_report.print_line(plan.describe(self.devices))

    def build(self, build_model, *arguments):
        """Builds the model in the strategy's scope.

        Args:
            build_model: Function that returns a compiled `keras.Model`.
            *arguments: What it is called with.

        Returns:
            The model.
        """
        with self.strategy.scope():
            return build_model(*arguments)

    def fit(
        self,
        model,
        training,
        validation,
        progress,
        callbacks=(),
        one_pass=False,
    ):
        """Trains what is not done yet, and keeps the records of the epochs.

        Args:
            model: What `build` returned.
            training: `tf.data.Dataset` (or whatever `fit` takes) of global
                batches, of which one epoch begins where the one before ended.
            validation: The same to validate on after each epoch, or `None`.
            progress: Dictionary from the names of figures in the logs to what
                people read; `"examples_per_second"` is among the logs.
            callbacks: More `keras.callbacks.Callback`s, run before the
                records are made: what they add to the logs is recorded.
                Defaults to none.
            one_pass: Whether an epoch is one pass of `training` instead.
                Defaults to `False`.
        """
        plan = self.plan
        report = None
        if self._is_first_worker:
            report = run_report.progress(plan.epochs, progress)
        records = epoch_records.EpochRecords(self.folder, report)
        model.fit(
            training,
            epochs=plan.epochs,
            steps_per_epoch=None if one_pass else plan.steps_per_epoch,
            validation_data=validation,
            shuffle=False,  # The order of the rows is the data set's.
            # Keras prints a bar per epoch, which is too much for many short
            # ones.
            verbose=0,
            callbacks=[
                kerasmgpu_callbacks.ThroughputLogger(),
                *callbacks,
                records,
                *self._checkpoints,
            ],
        )
        self.history = records.history

    def finish(self, model, loss, loss_label, figures=None, curve=None):
        """Writes model, learning curve and result; prints the final table.

        Args:
            model: The trained model.
            loss: Float, the loss to report.
            loss_label: What it is, in words.
            figures: Dictionary of the recipe's own figures, from a name (in
                `result.json`) to `(label, value)`, the label for the table.
                Defaults to none.
            curve: `run_report.Curve` to draw. Defaults to none.

        Returns:
            A `run_report.Result`.
        """
        figures = figures or {}
        speed = run_report.median_of(self.history, "examples_per_second")
        result = run_report.Result(
            replicas=self.num_replicas,
            devices=self.devices,
            global_batch_size=self.plan.global_batch_size,
            learning_rate=self.plan.learning_rate,
            # Fewer than planned where a callback ended the training.
            steps=len(self.history) * self.plan.steps_per_epoch,
            seconds=sum(record["seconds"] for record in self.history),
            loss=loss,
            examples_per_second=speed,
            examples_per_second_per_replica=speed and speed / self.num_replicas,
            data=self._data,
            figures={name: value for name, (_, value) in figures.items()},
        )
        if self.folder.path is not None:
            with self.folder.complete("model.keras") as temporary:
                model.save(temporary)
            if curve is not None:
                run_report.draw_learning_curve(self.folder, self.history, curve)
            self.folder.write_json("result.json", dataclasses.asdict(result))
        labels = {name: label for name, (label, _) in figures.items()}
        if self._is_first_worker:
            run_report.print_table(result, loss_label, labels)
        return result
