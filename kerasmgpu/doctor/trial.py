"""Trains a small model on one device and on all, as `python -m … FOLDER`.

The runs are recorded and compared as those of `kerasmgpu.verify` are.
"""

import json
import os
import pathlib
import resource
import sys
import tempfile
from typing import Any

import keras
import tensorflow as tf

import kerasmgpu
from kerasmgpu import distances
from kerasmgpu.callbacks.throughput import median_speed
from kerasmgpu.commands import child_processes
from kerasmgpu.doctor.trials import BATCH, JOB, JOB_TRIAL, TRIALS, Trial
from kerasmgpu.engine import devices
from kerasmgpu.job import workers
from kerasmgpu.job.cluster import SEPARATE_VARIABLE
from kerasmgpu.verify import comparison, training
from kerasmgpu.verify.outcome import Outcome

_TIMED_EPOCHS = 6
_WORKER = (
    "import pathlib, sys; from kerasmgpu.doctor import trial; "
    "trial.train_as_worker(pathlib.Path(sys.argv[1]))"
)
"""The program of each worker of `JOB_TRIAL`."""


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Runs the trial of a name.

    Args:
        job: Dictionary of `"trial"`, a name, and `"virtual_devices"`, an
            integer or `None`.

    Returns:
        Dictionary of `"distance"`, `"tolerance"`, `"rounding"` (the distance
        that one rounding error leads to; `None` if it wasn't needed),
        `"devices"`, and for `"one"` and `"many"` `"examples_per_second"`,
        `"first_step_seconds"` and `"peak_bytes"`.
    """
    names = devices.choose(virtual_devices=job["virtual_devices"])
    trial = TRIALS.get(job["trial"], JOB_TRIAL)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        one = train(trial, None, folder / "one")
        start = str(one.folder / "start.npz")
        if job["trial"] == JOB:
            many = _in_a_job(job["virtual_devices"], folder / "many")
            names = ["two workers"]
        else:
            strategy = kerasmgpu.strategy(devices=names, **trial.strategy)
            many = train(trial, strategy, folder / "many", start)
        tolerance = distances.TOLERANCES[one.facts["dtype"]]
        distance, rounding = _distance(one, many), None
        if distance > tolerance:
            nudge = (distances.UNITS[one.facts["dtype"]], 0)
            aside = train(trial, None, folder / "aside", start, nudge)
            rounding = _distance(one, aside)
    return {
        "distance": max(distance, many.facts["of_loaded"]),
        "tolerance": tolerance,
        "rounding": rounding,
        "devices": names,
        "one": one.facts["figures"],
        "many": many.facts["figures"],
    }


def train(
    trial: Trial,
    strategy: tf.distribute.Strategy | None,
    folder: pathlib.Path,
    start: str | None = None,
    nudge: tuple[float, int] | None = None,
) -> Outcome:
    """Trains a trial's model, and measures it.

    Args:
        strategy: The `tf.distribute.Strategy`, or `None` for plain Keras.
        folder: `pathlib.Path`, for the run's files.
        start: String, file of the weights to begin with. Default: those that
            the model is built with.
        nudge: Relative size, and seed, of random changes of these and of what
            layers give. Default: none.
    """
    # Its products are rounded to 10 bits, by an amount that depends on shapes.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if trial.policy == "float64":
        keras.config.set_floatx("float64")
    keras.config.set_dtype_policy(trial.policy)
    if tf.config.list_physical_devices("GPU"):
        tf.config.experimental.reset_memory_stats("GPU:0")
    folder.mkdir()
    built: list[keras.Model] = []

    def build() -> tuple[keras.Model, Any]:
        built.append(trial.model())
        return built[0], trial.data(built[0].input_shape[1:])

    job = {
        "folder": str(folder),
        "seed": 7,
        "steps": 4,
        "global_batch_size": BATCH,
        "start": start,
        "nudge": nudge,
        "float64": False,
    }
    facts = training.record(build, strategy, job)
    facts["figures"] = _figures(trial, built[0], facts)
    facts["of_loaded"] = _of_loaded(trial, built[0])
    return Outcome(folder, facts)


def _figures(
    trial: Trial, model: keras.Model, facts: dict[str, Any]
) -> dict[str, Any]:
    """Measures speed, in the median epoch, and memory."""
    x, y = trial.data(model.input_shape[1:])
    speed = median_speed(model, x, y, batch_size=BATCH, epochs=_TIMED_EPOCHS)
    return {
        "first_step_seconds": facts["first_step_seconds"],
        "examples_per_second": speed,
        "peak_bytes": _peak_bytes(),
    }


def _of_loaded(trial: Trial, model: keras.Model) -> float:
    """Saves and loads the model, if asked for; compares the predictions."""
    if not trial.reload:
        return 0.0
    x, _ = trial.data(model.input_shape[1:])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        again = keras.models.load_model(path)
    pair = (one.predict(x, BATCH, verbose=0) for one in (model, again))
    return distances.relative_difference(*pair)


def _in_a_job(virtual_devices: int | None, folder: pathlib.Path) -> Outcome:
    """Trains in a job of two workers on this machine."""
    if virtual_devices or len(tf.config.list_physical_devices("GPU")) < 2:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ[SEPARATE_VARIABLE] = "0"
    folder.mkdir()
    launch = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2", "--"]
    status, lines = child_processes.run_logged(
        [*launch, sys.executable, "-c", _WORKER, str(folder)],
        folder / "log.txt",
    )
    if status:
        reason = child_processes.failure_reason(status, lines)
        raise child_processes.ChildCrashed(reason, status)
    facts = json.loads((folder / "facts.json").read_text("utf-8"))
    return Outcome(folder / "0", facts)


def train_as_worker(folder: pathlib.Path) -> None:
    """Trains `JOB_TRIAL` as a worker; the first one writes the job's facts."""
    strategy = kerasmgpu.strategy()
    index = workers.index(strategy)
    outcome = train(JOB_TRIAL, strategy, folder / str(index))
    if index == 0:
        (folder / "facts.json").write_text(json.dumps(outcome.facts))


def _distance(one: Outcome, many: Outcome) -> float:
    """The larger of the distances of weights and of predictions."""
    compared = comparison.compare(one, many)
    return max(compared.weights, compared.predictions)


def _peak_bytes() -> int:
    """Peak memory of the first GPU, or of the process."""
    if tf.config.list_physical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    child_processes.do_job(main)
