"""A worker that trains with an experiment tracker's own callback.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.tracker_program FOLDER TOOL

As the tool's manual has it, with what docs/trackers.md says. `noting` and
`saving`, which are no trackers, are cases of `shared_program`.
"""

import atexit
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import kerasmgpu

OnFirstWorker = kerasmgpu.callbacks.OnFirstWorker


def noting(folder):
    """Two that note in a file that they were made, and each epoch.

    One is of a tracker's package, which needs no `OnFirstWorker`.
    """
    import keras

    class Notes(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.begin("on-first-worker")

        def begin(self, name):
            self.file = open(folder / name, "a", buffering=1)
            self.file.write("made\n")

        def on_epoch_end(self, epoch, logs=None):
            self.file.write(f"{epoch} {sorted(logs)}\n")

    class Bare(Notes):
        __module__ = "wandb.integration.keras"

        def __init__(self):
            keras.callbacks.Callback.__init__(self)

        def on_train_begin(self, logs=None):
            self.begin("bare")

    return [OnFirstWorker(Notes), Bare()]


def saving(folder):
    """Two that save the model and read a metric, one of a tracker's package.

    The second one is in the first worker's list only, as `autolog` adds it.
    """
    import keras

    class Saves(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.save(folder / f"{type(self).__name__}.{epoch}.keras")
            print(type(self).__name__, float(self.model.metrics[0].result()))

        def on_train_batch_end(self, batch, logs=None):
            self.model.get_weights()

    class Bare(Saves):
        __module__ = "mlflow.tensorflow.callback"

    found = [keras.callbacks.CSVLogger(folder / "log.csv")]
    if kerasmgpu.is_first_worker():
        found.insert(0, Bare())
    return [*found, OnFirstWorker(Saves)]


def mlflow(folder):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow
    import mlflow.keras

    if kerasmgpu.is_first_worker():
        mlflow.set_tracking_uri((folder / "mlruns").as_uri())
        mlflow.start_run()
    return [mlflow.keras.MlflowCallback()]


def autolog(folder):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow
    import mlflow.keras

    if kerasmgpu.is_first_worker():
        mlflow.set_tracking_uri((folder / "mlruns").as_uri())
        mlflow.keras.autolog(log_models=False)
    return []


def wandb(folder):
    import wandb
    from wandb.integration.keras import (
        WandbMetricsLogger,
        WandbModelCheckpoint,
    )

    first = kerasmgpu.is_first_worker()
    mode = "offline" if first else "disabled"
    wandb.init(project="tests", dir=str(folder), mode=mode)
    atexit.register(wandb.finish)  # Prints the summary.
    return [
        WandbMetricsLogger(log_freq="batch"),
        WandbModelCheckpoint(str(folder / "model-{epoch}.keras")),
    ]


def comet(folder):
    import comet_ml

    if kerasmgpu.is_first_worker():
        comet_ml.OfflineExperiment(
            offline_directory=str(folder), project_name="tests"
        )

    def make():
        return comet_ml.get_running_experiment().get_callback("tf-keras")

    return [OnFirstWorker(make)]


TOOLS = {
    tool.__name__: tool
    for tool in (noting, saving, mlflow, autolog, wandb, comet)
}


def run(strategy, tool, folder):
    """Trains for two epochs of four steps."""
    shard = "weights" if tool == "saving" else None
    strategy = strategy(shard=shard, min_shard_bytes=0)
    import keras

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile("sgd", "mse")
    callbacks = TOOLS[tool](folder)
    x = np.random.default_rng(0).normal(size=(32, 4))
    model.fit(
        x,
        x[:, :1],
        batch_size=8,
        epochs=2,
        verbose=2,
        validation_data=(x[:8], x[:8, :1]),
        callbacks=callbacks,
    )


def main(folder, tool):
    """Trains in a job of its own."""
    if tool == "comet":
        import comet_ml  # noqa: F401  (asks to be imported before Keras)
    run(kerasmgpu.strategy, tool, pathlib.Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
