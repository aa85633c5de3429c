"""Runs programs after keras.io's examples, and after public bug reports.

    python -m tests.keras_io
    python -m tests.keras_io --programs=nerf,gan --jobs=1
    python -m tests.keras_io --as_gpus    # the program of GPUs, on logical CPUs

Results are lines of JSON in `--results`, by which a command that was cut off is
continued: delete the file to measure anew. A section of the page is written
when all of its programs have results. The status is 1 if a program fails, or is
not in parity, under kerasmgpu.
"""

import os
import pathlib
import resource

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_list("programs", [], "Parts of names or groups; default: all.")
flags.DEFINE_integer("jobs", 2, "Most processes at a time.", lower_bound=1)
flags.DEFINE_integer("timeout_seconds", 600, "Longest time of one run.")
flags.DEFINE_bool("as_gpus", False, "Whether replicas run the program of GPUs.")
flags.DEFINE_string("results", "build/keras_io.jsonl", "File of results.")
flags.DEFINE_string("page", "docs/examples.md", "Page to write.")

PACKAGES = ("keras", "tensorflow")


def main(argv):
    del argv
    print("Importing TensorFlow and the programs …", flush=True)
    # The strided 1 x 1 convolutions of two programs; see troubleshooting.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tests.conftest  # noqa: F401  (makes the logical devices)
    from tests.keras_io import comparison, processes, registry, table
    from tests.keras_io.all import EXAMPLES

    groups = {name: example.group for name, example in EXAMPLES.items()}
    chosen = processes.chosen(FLAGS.programs, groups)
    results, versions = processes.run_missing(
        FLAGS.results,
        PACKAGES,
        dict.fromkeys(
            chosen,
            [comparison.AS_GPUS] if FLAGS.as_gpus else comparison.VARIANTS,
        ),
        comparison.records,
        FLAGS.jobs,
        FLAGS.timeout_seconds,
        lambda name, result: table.verdict(result),
    )
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (cpu.ru_utime + cpu.ru_stime) / 60
    print(f"{minutes:.1f} minutes of CPU.")
    of_chosen = {key: r for key, r in results.items() if key[0] in chosen}
    if FLAGS.as_gpus:
        own = [r for (_, v), r in of_chosen.items() if v == comparison.AS_GPUS]
        good = sum(result.get("in_parity", False) for result in own)
        print(f"Of {len(own)} programs {good} are in parity as GPUs run them.")
        return int(good < len(own))
    for (who, replicas), (runs, good) in table.sums(of_chosen).items():
        print(
            f"{who}, {replicas} replicas: of {len(chosen)} programs {runs} run "
            f"and {good} are in parity."
        )
    facts = {"rows": registry.ROWS, "batch": registry.BATCH_SIZE}
    page = pathlib.Path(FLAGS.page)
    page.write_text(
        table.rewritten(
            page.read_text("utf-8"), EXAMPLES, results, **versions, **facts
        ),
        "utf-8",
    )
    return 1 - all(
        result.get("in_parity", False)
        for (_, (who, _)), result in of_chosen.items()
        if who == "kerasmgpu"
    )


if __name__ == "__main__":
    app.run(main)
