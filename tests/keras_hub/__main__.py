"""Runs KerasHub's and keras-rs's models on one device and on replicas.

    pip install keras-hub keras-rs
    python -m tests.keras_hub                             # all; writes the page
    python -m tests.keras_hub bert resnet --settings=plain

Families are given by parts of their names or kinds. Results are lines of JSON
in `--results`, by which a command that was cut off is continued: delete the
file to measure anew. The status is 1 if a family fails or is not in parity.
"""

import importlib.metadata
import json
import os
import pathlib
import time

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_list("settings", [], "Settings to run; default: all.")
flags.DEFINE_integer("jobs", 1, "Most processes at a time.", lower_bound=1)
flags.DEFINE_integer("timeout_seconds", 600, "Longest time of one setting.")
flags.DEFINE_string("results", "build/keras_hub.jsonl", "File of results.")
flags.DEFINE_string("page", "docs/keras_hub.md", "Page to write.")

PACKAGES = ("keras-hub", "keras-rs", "keras", "tensorflow")


def main(argv):
    began = time.monotonic()
    print("Importing TensorFlow and KerasHub …", flush=True)
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tests.conftest  # noqa: F401  (makes the logical devices)
    from tests.keras_hub import registry, settings, table
    from tests.keras_hub.all import FAMILIES
    from tests.keras_io import processes

    registry.hub()  # Children are forked with them.
    registry.rs()
    chosen = _chosen(argv[1:], FAMILIES)
    wanted = FLAGS.settings or settings.SETTINGS
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    path = pathlib.Path(FLAGS.results)
    results = _known(path, versions)
    work = {
        name: [s for s in wanted if (name, s) not in results] for name in chosen
    }
    work = {name: names for name, names in work.items() if names}
    count = sum(map(len, work.values()))
    print(f"{len(chosen)} families, {count} runs to do.", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:

        def tell(name, setting, result):
            results[name, setting] = result
            record = {"name": name, "setting": setting, **versions, **result}
            print(json.dumps(record), file=file, flush=True)
            print(
                f"{time.monotonic() - began:5.0f} s: {name}, {setting}: "
                f"{table.cell(result)}",
                flush=True,
            )

        processes.run_all(
            settings.records, work, FLAGS.jobs, FLAGS.timeout_seconds, tell
        )
    facts = {
        "rows": registry.ROWS,
        "batch": registry.BATCH_SIZE,
        "replicas": settings.REPLICAS,
    }
    page = pathlib.Path(FLAGS.page)
    page.write_text(table.page(FAMILIES, results, **versions, **facts), "utf-8")
    print(f"wrote {page}")
    return 1 - all(
        results[name, setting].get("in_parity", False)
        for name in chosen
        for setting in wanted
    )


def _chosen(words, families):
    words = [word.lower() for word in words]
    chosen = list(
        dict.fromkeys(
            name
            for word in words or [""]
            for name, family in families.items()
            if word in f"{family.kind}: {name}".lower()
        )
    )
    if not chosen:
        raise app.UsageError(f"No family's name has any of {words}.")
    return chosen


def _known(path, versions):
    """Results of an earlier command, if made with the same packages."""
    known = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        if all(record.pop(name) == v for name, v in versions.items()):
            known[record.pop("name"), record.pop("setting")] = record
    return known


if __name__ == "__main__":
    app.run(main)
