"""Runs the programs of a table on one device and on replicas, and compares.

    python -m benchmarks.exactness --table=parity
    python -m benchmarks.exactness --table=models --names=generative,gpt
    python -m benchmarks.exactness --table=keras_io --contenders="as GPUs"
    python -m benchmarks.exactness --table=reports --replica_counts=3
    python -m benchmarks.exactness --table=keras_hub --contenders=plain,xla
    python -m benchmarks.exactness --table=keras_own --contenders=stock,kerasmgpu
    python -m benchmarks.exactness --table=keras_own --names=lstm --select=fit
    python -m benchmarks.exactness --table=distribution --checkout=../keras-hub

The table comes last, in Markdown; `--write` puts its rows into the page that has
it. Results are lines of JSON in `--results`, by which a command that was cut off
is continued: delete the file to measure anew. A program that ends its process,
or takes too long, is a row. The status is 1 if a program fails, or is not in
parity, under anything but stock TensorFlow.
"""

import functools
import os
import pathlib
from importlib import metadata

from absl import app, flags

from benchmarks.exactness.tables import TABLES, cell, markdown, rewritten, rows

FLAGS = flags.FLAGS
flags.DEFINE_enum("table", None, list(TABLES), "What to run.", required=True)
flags.DEFINE_list("names", [], "Parts of names or groups; default: all.")
flags.DEFINE_list(
    "contenders",
    [],
    "Of `stock`, `kerasmgpu` and `as GPUs` (the program of GPUs, on logical "
    "CPUs), or settings of the table. Default: those of its page.",
)
flags.DEFINE_list("replica_counts", [], "Numbers of replicas.")
flags.DEFINE_string("select", "", "Tests of Keras to run, as `pytest -k`.")
flags.DEFINE_string("checkout", None, "Folder of KerasHub, to run its tests.")
flags.DEFINE_integer("jobs", 1, "Most processes at a time.", lower_bound=1)
flags.DEFINE_integer("timeout_seconds", 600, "Longest time of one run.")
flags.DEFINE_string("results", None, "Default: build/exactness/TABLE.jsonl.")
flags.DEFINE_bool("write", False, "Whether to write rows of the page.")


def main(argv):
    if argv[1:]:
        raise app.UsageError(f"Received: {argv[1:]}; names are in --names.")
    print("Importing TensorFlow and the programs …", flush=True)
    # The strided 1 x 1 convolutions of some programs; see troubleshooting.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tests.conftest  # noqa: F401  (makes the logical devices)
    from benchmarks.exactness import processes, registry

    table = TABLES[FLAGS.table]
    cases = registry.cases(FLAGS.table)
    groups = {name: case.group for name, case in cases.items()}
    chosen = processes.chosen(FLAGS.names, groups)
    variants = table.variants(FLAGS.contenders, FLAGS.replica_counts)
    options = {name: FLAGS[name].value for name in table.options}
    versions = {name: metadata.version(name) for name in table.packages}

    def measures(name):
        return table.measure(cases[name], **options)

    results = processes.run_missing(
        FLAGS.results or f"build/exactness/{FLAGS.table}.jsonl",
        {**versions, **options},
        dict.fromkeys(chosen, variants),
        functools.partial(processes.records, measures),
        FLAGS.jobs,
        FLAGS.timeout_seconds,
        cell,
    )
    found = rows(table, {n: cases[n] for n in chosen}, variants, results)
    print(markdown(table, variants, found))
    own = {(n, v): results[n, v] for n in chosen for v in variants}
    for (name, variant), result in own.items():
        for note in result.get("notes", ()):
            print(f"{name}, {variant}: {note}")
    if FLAGS.write:
        page = pathlib.Path(table.page)
        text = page.read_text("utf-8")
        text = rewritten(text, table, cases, variants, results)
        page.write_text(text, "utf-8")
        print(f"wrote {page}")
    ours = [r for (_, v), r in own.items() if not v.startswith("stock")]
    were_run = [result for result in ours if "missing" not in result]
    good = [result for result in were_run if result.get("in_parity")]
    return int(len(good) < len(were_run) or (ours and not were_run))


if __name__ == "__main__":
    app.run(main)
