"""Measures the memory in which a job builds, loads, trains, saves and resumes.

    python -m benchmarks.building --folder=/tmp/building

Dense layers and Adam under `shard="weights"`. One device trains the model, and
writes its files. A job of four workers then does the same: each worker's private
memory is limited (`RLIMIT_DATA`) to a third of the state above what it had
before the model. Jobs of 3 and of 2 workers resume its checkpoint, without a
limit. The files are compared, and a table in Markdown is printed: the largest
growth of any worker's resident memory in each stage, what is predicted for
building and loading, and its parts of the state.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

SHARE = 3
"""Times that a worker's limit fits into the state."""

_STEPS = 2
"""Steps of an epoch."""

_ENVIRONMENT = {
    "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's allocator keeps freed memory.
    "MALLOC_MMAP_THRESHOLD_": "262144",
    "MALLOC_ARENA_MAX": "2",
}


def mebibytes(name):
    """Returns a figure of Linux's `/proc/self/status`, in MiB."""
    with open("/proc/self/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise KeyError(name)


class Meter:
    """Measures stages, in MiB above what the process had in the beginning."""

    def __init__(self):
        self._start = mebibytes("VmRSS")
        self.grown = {}

    @contextlib.contextmanager
    def stage(self, name):
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak anew.
        yield
        self.grown[name] = mebibytes("VmHWM") - self._start


def network(layers, units):
    """Builds the model and its optimizer's variables, on any strategy."""
    import keras

    model = keras.Sequential([keras.Input((units,))])
    for _ in range(layers):
        model.add(keras.layers.Dense(units))
    model.compile(keras.optimizers.Adam(1e-4), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def rows(units, epochs):
    """Rows of some epochs of `_STEPS` steps, of 12 rows each."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(12 * _STEPS, units)).astype("float32")
    settings = {"batch_size": 12, "shuffle": False, "verbose": 0}
    return {"x": x, "y": x, "epochs": epochs, **settings}


def warm_up(scope, folder):
    """Trains a small model, so that TensorFlow and Keras are loaded."""
    import keras

    with scope():
        model = network(2, 80)
    model.fit(**rows(80, 1))
    path = folder / "small.keras"
    model.save(path)
    with scope():
        keras.saving.load_model(path)


def one_device(arguments):
    """Trains on one device: files of all stages to compare with."""
    import keras

    folder, sizes = arguments.folder, (arguments.layers, arguments.units)
    keras.utils.set_random_seed(2)
    model = network(*sizes)
    model.save_weights(folder / "start.weights.h5")
    for name in ("trained", "resumed"):
        model.fit(**rows(arguments.units, 1))
        model.save_weights(folder / f"{name}.weights.h5")


def in_job(arguments):
    """Runs the stages of a job, and writes what its workers needed."""
    import keras

    import kerasmgpu
    from kerasmgpu.callbacks import Checkpoint
    from kerasmgpu.job import workers
    from kerasmgpu.memory import traced_step
    from kerasmgpu.memory.building import building_bytes
    from kerasmgpu.memory.state_bytes import Setting

    folder = arguments.folder
    strategy = kerasmgpu.strategy(shard=arguments.shard)
    own = folder / f"job-{strategy.num_workers}"
    own.mkdir(exist_ok=True)
    warm_up(strategy.scope, own)
    meter, no_limit = Meter(), resource.getrlimit(resource.RLIMIT_DATA)
    if arguments.limit:
        most = int((mebibytes("VmData") + arguments.limit) * 2**20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, no_limit[1]))
    else:
        with strategy.scope(), meter.stage("load_model"):
            path = folder / "job-4" / "trained.keras"
            model = keras.saving.load_model(path)
        del model
        gc.collect()
    checkpoint = Checkpoint(
        folder / "checkpoints", sharded=True, asynchronous=False
    )
    keras.utils.set_random_seed(1)
    with strategy.scope(), meter.stage("build"):
        model = network(arguments.layers, arguments.units)

    records = [record for _, record in traced_step._records(model)]
    workers_of_one = Setting(
        strategy.num_workers,
        shard=arguments.shard,
        num_workers=strategy.num_workers,
        device_type="CPU",
    )
    found = building_bytes(records, workers_of_one)
    predicted = {"build": found.built}
    predicted |= dict.fromkeys(("load_weights", "load_model"), found.loaded)

    def save(name):
        model.save_weights(own / f"{name}.weights.h5")

    if arguments.limit:
        with meter.stage("load_weights"):
            model.load_weights(folder / "start.weights.h5")
        with meter.stage("save_weights"):
            save("loaded")
        with meter.stage("train, checkpoint"):
            model.fit(**rows(arguments.units, 1), callbacks=[checkpoint])
        save("trained")
        with meter.stage("save"):
            model.save(own / "trained.keras")
        del model, checkpoint
        gc.collect()
        with strategy.scope(), meter.stage("load_model, after training"):
            model = keras.saving.load_model(own / "trained.keras")
        resource.setrlimit(resource.RLIMIT_DATA, no_limit)
        save("loaded model")  # To be compared.
    else:
        with meter.stage("resume, train, checkpoint"):
            model.fit(**rows(arguments.units, 2), callbacks=[checkpoint])
        with meter.stage("save_weights"):
            save("resumed")
    grown = workers.gather(strategy, list(meter.grown.values())).max(0)
    if workers.is_first(strategy):
        report = [
            (stage, predicted.get(stage), float(most))
            for stage, most in zip(meter.grown, grown)
        ]
        (own / "peaks.json").write_text(json.dumps(report))


def difference(path, other):
    """Returns the largest absolute difference of the variables of two files."""
    import h5py

    found = []
    with h5py.File(path) as one, h5py.File(other) as two:

        def compare(name, dataset):
            if isinstance(dataset, h5py.Dataset):
                apart = np.abs(dataset[()] - two[name][()])
                found.append(float(np.max(apart, initial=0)))

        one.visititems(compare)
    return max(found)


def start(arguments, *command):
    """Runs a command of Python with the arguments of this one."""
    flags = [
        f"--{name}={getattr(arguments, name)}"
        for name in ("folder", "layers", "units", "shard")
    ]
    environment = {**os.environ, **_ENVIRONMENT}
    command = [sys.executable, *command, *flags]
    # The limit counts threads' stacks, which are mapped and hardly used.
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, most))
    return subprocess.run(command, env=environment, check=True)


def main():
    """Runs all jobs, and prints tables in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--shard", default="weights")
    parser.add_argument("--limit", type=float, default=0.0)
    parser.add_argument("--role", choices=("one_device", "in_job"))
    arguments = parser.parse_args()
    if arguments.role:
        return {"one_device": one_device, "in_job": in_job}[arguments.role](
            arguments
        )
    folder, units = arguments.folder, arguments.units
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    module = ("-m", "benchmarks.building")
    start(arguments, *module, "--role=one_device")
    state = 3 * 4 * arguments.layers * (units + 1) * units / 2**20
    peaks = {}
    for number in (4, 3, 2):
        limit = state / SHARE if number == 4 else 0
        launch = ("-m", "kerasmgpu.launch", f"--num_workers={number}", "--")
        start(arguments, *launch, *module, "--role=in_job", f"--limit={limit}")
        path = folder / f"job-{number}" / "peaks.json"
        peaks[number] = json.loads(path.read_text())
    print(f"state: {state:.0f} MiB; limit of four workers: {state / SHARE:.0f}")
    print("| workers | its parts | stage | predicted | peak |")
    print("|---:|---:|---|---:|---:|")
    for number, stages in peaks.items():
        for stage, predicted, most in stages:
            shown = f"{predicted / 2**20:.0f}" if predicted else ""
            cells = number, f"{state / number:.0f}", stage, shown, f"{most:.0f}"
            print(f"| {' | '.join(map(str, cells))} |")
    print("| values | largest difference |\n|---|---:|")
    for what, *names in (
        ("loaded weights, of the file", "job-4/loaded", "start"),
        (
            "loaded model, of the saved one",
            "job-4/loaded model",
            "job-4/trained",
        ),
        ("trained, of one device", "job-4/trained", "trained"),
        ("resumed by 3, of one device", "job-3/resumed", "resumed"),
        ("resumed by 2, of one device", "job-2/resumed", "resumed"),
    ):
        paths = [folder / f"{name}.weights.h5" for name in names]
        print(f"| {what} | {difference(*paths):.2g} |")


if __name__ == "__main__":
    main()
