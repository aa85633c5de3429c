"""Times checkpoints of a job, and measures the memory that they take.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m benchmarks.checkpoints --folder=/tmp/checkpoints --units=2000

Dense layers and Adam under `shard="weights"`. In turns the state is saved and
loaded as a sharded checkpoint, as one file, and by Keras as a `.keras` file. The
first worker prints medians: seconds until the files are on disk, or all workers
have their parts, and by how much each worker's resident memory grows at most.
Start it with `MALLOC_MMAP_THRESHOLD_=262144`, so that freed memory goes back.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu
from kerasmgpu.callbacks.checkpoints import restoring, saving, snapshot
from kerasmgpu.callbacks.checkpoints.folder import Folder, file_name
from kerasmgpu.job import workers


def measured(strategy, call):
    """Calls a function on all workers.

    Returns:
        List: seconds until all have returned, and for each worker the MiB by
        which its memory grew at most.
    """
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # The peak anew.
    before = _mebibytes("VmRSS")
    workers.any_of(strategy, False)
    start = time.perf_counter()
    call()
    workers.any_of(strategy, False)
    seconds = time.perf_counter() - start
    grown = _mebibytes("VmHWM") - before
    return [seconds, *workers.gather(strategy, [grown])[:, 0]]


def _mebibytes(name):
    with open("/proc/self/status", encoding="utf-8") as status:
        for line in status:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise KeyError(name)


def ways(model, folder):
    """Pairs of functions, which save and load the state of a model, by name."""
    strategy = model.distribute_strategy

    def save(is_sharded):
        progress = snapshot.Progress(
            1, 0, 0, 1, False, [], {}, None, None, None
        )
        name = file_name(1, 0, is_sharded)
        content = snapshot.take(model, progress, is_sharded, {})
        place = Folder(folder / name, keep=1)
        if workers.is_first(strategy):
            place.prepare()
        workers.any_of(strategy, False)
        saver = saving.Saver(place, asynchronous=False)
        saver.save(strategy, name, content, None)

    def load(is_sharded):
        place = Folder(folder / file_name(1, 0, is_sharded), keep=1)
        found = restoring.newest(strategy, place, resume=True)
        found.restore_variables(model)

    def save_by_keras():
        model.save(folder / "model.keras")
        if workers.is_first(strategy):
            with open(folder / "model.keras", "rb") as file:
                os.fsync(file.fileno())

    return {
        "sharded": (lambda: save(True), lambda: load(True)),
        "one file": (lambda: save(False), lambda: load(False)),
        ".keras": (
            save_by_keras,
            lambda: model.load_weights(folder / "model.keras"),
        ),
    }


def main():
    """Prints a table in Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    strategy = kerasmgpu.strategy(shard="weights", min_shard_bytes=0)
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.Input((arguments.units,))])
        for _ in range(arguments.layers):
            model.add(keras.layers.Dense(arguments.units))
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    is_first = workers.is_first(strategy)
    figures = {}
    for _ in range(arguments.rounds):
        if is_first:
            shutil.rmtree(arguments.folder, ignore_errors=True)
            arguments.folder.mkdir(parents=True)
        workers.any_of(strategy, False)
        for name, pair in ways(model, arguments.folder).items():
            for what, call in zip(("save", "load"), pair):
                found = measured(strategy, call)
                figures.setdefault((name, what), []).append(found)
    if not is_first:
        return
    size = sum(
        path.stat().st_size for path in arguments.folder.rglob("part-*.npz")
    )
    print(f"state: {size / 2**20:.0f} MiB")
    print("| | | s | MiB, by worker |\n|---|---|---:|---:|")
    for (name, what), rounds in figures.items():
        seconds, *grown = map(statistics.median, zip(*rounds))
        memory = ", ".join(f"{each:.0f}" for each in grown)
        print(f"| {name} | {what} | {seconds:.2f} | {memory} |")


if __name__ == "__main__":
    main()
