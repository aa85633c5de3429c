"""Trains a small model on one device and on all, as `python -m … FOLDER`."""

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu.commands import child_processes
from kerasmgpu.doctor.trial_models import JOB, JOB_TRIAL, ROWS, TRIALS, Trial
from kerasmgpu.verify import comparison, training
from kerasmgpu.verify.outcome import load_arrays

BATCH = ROWS // 2
_EPOCHS = 2
_TIMED_EPOCHS = 5


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the trial of a name.

    Args:
        job: Dictionary of `"trial"`, a name; `"virtual_devices"`, an integer or
            `None`; and `"timeout_seconds"`.

    Returns:
        Dictionary of `"distance"`, `"tolerance"`, `"rounding"` (the distance
        that one rounding error leads to; `None` if it wasn't needed),
        `"devices"`, and for `"one"` and `"many"` `"examples_per_second"`,
        `"first_step_seconds"` and `"peak_bytes"`.
    """
    from kerasmgpu.engine import devices

    names = devices.choose(virtual_devices=job["virtual_devices"])
    trial = TRIALS.get(job["trial"], JOB_TRIAL)
    configure(trial)
    one = Trained(trial)
    one.measure()
    if job["trial"] == JOB:
        many = _in_a_job(job["virtual_devices"], job["timeout_seconds"])
        used = ["two workers"]
    else:
        strategy = kerasmgpu.strategy(devices=names, **trial.strategy)
        many = Trained(trial, strategy, one.start)
        many.measure()
        used = names
    distance = _distance(one, many.end, many.predictions)
    tolerance = comparison.TOLERANCES[training.dtype(one.model)]
    rounding = None
    if distance > tolerance:
        random = np.random.default_rng(0)
        start = [training.perturbed(array, random) for array in one.start]
        aside = Trained(trial, start=start)
        rounding = _distance(one, aside.end, aside.predictions)
    if trial.reload:
        distance = max(distance, many.distance_of_loaded())
    return {
        "distance": distance,
        "tolerance": tolerance,
        "rounding": rounding,
        "devices": used,
        "one": one.figures,
        "many": many.figures,
    }


def configure(trial: Trial) -> None:
    """Sets the types in which a trial's model computes."""
    # Its products are rounded to 10 bits, by an amount that depends on shapes.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if trial.policy == "float64":
        keras.config.set_floatx("float64")
    keras.config.set_dtype_policy(trial.policy)


class Trained:
    """A trained model.

    Args:
        trial: The `Trial`.
        strategy: The `tf.distribute.Strategy`, or `None` for plain Keras.
        start: List of arrays, the variables' initial values. Default: those
            that the model is built with.

    Attributes:
        model: The model.
        start: List of arrays, the variables before training.
        end: The same after it.
        predictions: Array.
        figures: Dictionary; see `main`.
    """

    def __init__(
        self,
        trial: Trial,
        strategy: Any = None,
        start: list[np.ndarray] | None = None,
    ) -> None:
        if tf.config.list_physical_devices("GPU"):
            tf.config.experimental.reset_memory_stats("GPU:0")
        keras.utils.set_random_seed(7)
        scope = strategy.scope() if strategy else contextlib.nullcontext()
        with scope:
            self.model = trial.model()
        self.x, self.y = trial.data(self.model.input_shape[1:])
        if start is not None:
            for variable, array in zip(self.model.variables, start):
                variable.assign(array)
        self.start = training.values(self.model)
        keras.utils.set_random_seed(7)
        self._begin = time.perf_counter()
        self.figures: dict[str, Any] = {}
        first = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: self.figures.setdefault(
                "first_step_seconds", time.perf_counter() - self._begin
            )
        )
        self._fit(_EPOCHS, [first])
        self.end = training.values(self.model)
        self.predictions = self.model.predict(self.x, BATCH, verbose=0)

    def _fit(self, epochs: int, callbacks: list[Any]) -> None:
        self.model.fit(
            self.x,
            self.y,
            batch_size=BATCH,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        )

    def measure(self) -> None:
        """Measures examples per second, in the median epoch, and memory."""
        times: list[float] = []
        clock = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: times.append(
                time.perf_counter()
            ),
        )
        self._fit(_TIMED_EPOCHS + 1, [clock])
        seconds = float(np.median(np.diff(times)))
        self.figures["examples_per_second"] = ROWS / seconds
        self.figures["peak_bytes"] = _peak_bytes()

    def distance_of_loaded(self) -> float:
        """Saves and loads the model; compares the predictions."""
        now = self.model.predict(self.x, BATCH, verbose=0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            self.model.save(path)
            loaded = keras.models.load_model(path)
        again = loaded.predict(self.x, BATCH, verbose=0)
        return comparison.relative_difference(now, again)


class _OfJob:
    """What the first of two workers has written."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.end = load_arrays(folder / "end.npz")
        (self.predictions,) = load_arrays(folder / "predictions.npz")
        self.figures = json.loads((folder / "figures.json").read_text())


def _in_a_job(virtual_devices: int | None, timeout_seconds: float) -> Any:
    """Trains in a job of two workers on this machine."""
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    module = "kerasmgpu.doctor.job_trial"
    environment = dict(os.environ)
    few = len(tf.config.list_physical_devices("GPU")) < 2
    if virtual_devices or few:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, "--", "-m", module, folder],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_seconds,
        )
        if done.returncode:
            lines = done.stdout.splitlines()
            raise child_processes.ChildCrashed(
                child_processes.failure_reason(done.returncode, lines),
                done.returncode,
            )
        return _OfJob(pathlib.Path(folder))


def _distance(one: Trained, end: list[np.ndarray], predictions: Any) -> float:
    """The larger of the distances of weights and of predictions."""
    kinds = [v["kind"] for v in training.describe_variables(one.model)]
    steps = _EPOCHS * 2
    distances = comparison.weight_differences(
        one.start, one.end, end, kinds, steps
    )
    return max(
        *distances, comparison.relative_difference(one.predictions, predictions)
    )


def _peak_bytes() -> int:
    """Peak memory of the first GPU, or of the process."""
    if tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    child_processes.do_job(main)
