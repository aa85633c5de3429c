"""Runs programs after keras.io's examples, and after public bug reports.

    python -m tests.keras_io
    python -m tests.keras_io --programs=nerf,gan --jobs=1

Results are lines of JSON in `--results`, by which a command that was cut off is
continued: delete the file to measure anew. A section of the page is written
when all of its programs have results. The status is 1 if a program fails, or is
not in parity, under kerasmgpu.
"""

import importlib.metadata
import json
import os
import pathlib
import resource
import time

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_list("programs", [], "Parts of names or groups; default: all.")
flags.DEFINE_integer("jobs", 2, "Most processes at a time.", lower_bound=1)
flags.DEFINE_integer("timeout_seconds", 600, "Longest time of one run.")
flags.DEFINE_string("results", "build/keras_io.jsonl", "File of results.")
flags.DEFINE_string("page", "docs/examples.md", "Page to write.")

PACKAGES = ("keras", "tensorflow")


def main(argv):
    del argv
    began = time.monotonic()
    print("Importing TensorFlow and the programs …", flush=True)
    # The strided 1 x 1 convolutions of two programs; see troubleshooting.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tests.conftest  # noqa: F401  (makes the logical devices)
    from tests.keras_io import comparison, processes, registry, table
    from tests.keras_io.all import EXAMPLES

    chosen = _chosen(EXAMPLES)
    results = _known()
    work = {
        name: [v for v in comparison.VARIANTS if (name, v) not in results]
        for name in chosen
    }
    work = {name: variants for name, variants in work.items() if variants}
    count = sum(map(len, work.values()))
    print(f"{len(chosen)} programs, {count} runs to do.", flush=True)
    path = pathlib.Path(FLAGS.results)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:

        def tell(name, variant, result):
            nonlocal count
            count -= 1
            results[name, variant] = result
            record = {"name": name, "variant": variant, **_versions(), **result}
            print(json.dumps(record), file=file, flush=True)
            seconds = time.monotonic() - began
            print(
                f"{seconds:5.0f} s, {count:3} left: {name}, {variant[0]}, "
                f"{variant[1]} replicas: {table.verdict(result)}",
                flush=True,
            )

        processes.run_all(
            comparison.records, work, FLAGS.jobs, FLAGS.timeout_seconds, tell
        )
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (cpu.ru_utime + cpu.ru_stime) / 60
    print(f"{minutes:.1f} minutes of CPU.")
    of_chosen = {key: r for key, r in results.items() if key[0] in chosen}
    for (who, replicas), (runs, good) in table.sums(of_chosen).items():
        print(
            f"{who}, {replicas} replicas: of {len(chosen)} programs {runs} run "
            f"and {good} are in parity."
        )
    facts = {"rows": registry.ROWS, "batch": registry.BATCH_SIZE}
    page = pathlib.Path(FLAGS.page)
    page.write_text(
        table.rewritten(
            page.read_text("utf-8"), EXAMPLES, results, **_versions(), **facts
        ),
        "utf-8",
    )
    return 1 - all(
        result.get("in_parity", False)
        for (_, (who, _)), result in of_chosen.items()
        if who == "kerasmgpu"
    )


def _chosen(examples):
    words = [word.lower() for word in FLAGS.programs]
    chosen = [
        name
        for name, example in examples.items()
        if not words or any(w in f"{example.group}: {name}" for w in words)
    ]
    if not chosen:
        raise app.UsageError(f"No program's name has any of {words}.")
    return chosen


def _versions():
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _known():
    """Results of an earlier command, if made with the same packages."""
    path, known = pathlib.Path(FLAGS.results), {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        if all(record.pop(k) == v for k, v in _versions().items()):
            name, variant = record.pop("name"), tuple(record.pop("variant"))
            known[name, variant] = record
    return known


if __name__ == "__main__":
    app.run(main)
