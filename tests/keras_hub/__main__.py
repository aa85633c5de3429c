"""Runs KerasHub's and keras-rs's models on one device and on replicas.

    pip install keras-hub keras-rs
    python -m tests.keras_hub                             # all; writes the page
    python -m tests.keras_hub bert resnet --settings=plain

Families are given by parts of their names or kinds. Results are lines of JSON
in `--results`, by which a command that was cut off is continued: delete the
file to measure anew. The status is 1 if a family fails or is not in parity.
"""

import os
import pathlib

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_list("settings", [], "Settings to run; default: all.")
flags.DEFINE_integer("jobs", 1, "Most processes at a time.", lower_bound=1)
flags.DEFINE_integer("timeout_seconds", 600, "Longest time of one setting.")
flags.DEFINE_string("results", "build/keras_hub.jsonl", "File of results.")
flags.DEFINE_string("page", "docs/keras_hub.md", "Page to write.")

PACKAGES = ("keras-hub", "keras-rs", "keras", "tensorflow")


def main(argv):
    print("Importing TensorFlow and KerasHub …", flush=True)
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tests.conftest  # noqa: F401  (makes the logical devices)
    from tests.keras_hub import registry, settings, table
    from tests.keras_hub.all import FAMILIES
    from tests.keras_io import processes

    registry.hub()  # Children are forked with them.
    registry.rs()
    kinds = {name: family.kind for name, family in FAMILIES.items()}
    chosen = processes.chosen(argv[1:], kinds)
    wanted = FLAGS.settings or settings.SETTINGS
    results, versions = processes.run_missing(
        FLAGS.results,
        PACKAGES,
        dict.fromkeys(chosen, wanted),
        settings.records,
        FLAGS.jobs,
        FLAGS.timeout_seconds,
        lambda name, result: table.cell(result),
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


if __name__ == "__main__":
    app.run(main)
