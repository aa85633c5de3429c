"""Trains the table of models on one device and on replicas, and prints it.

    python -m tests.models
    python -m tests.models --select=generative,gpt --replicas=2

The table comes last, in Markdown. Results are lines of JSON in `--results`, by
which a command that was cut off is continued: delete the file to measure anew.
The status is 1 if a model differs by more than its tolerance, if replicas'
copies differ, or if anything is raised.
"""

import dataclasses
import math
import os

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_list("select", [], "Parts of names or groups of models; or all.")
flags.DEFINE_list("replicas", ["2", "3"], "Numbers of replicas.")
flags.DEFINE_integer("jobs", 1, "Most processes at a time.", lower_bound=1)
flags.DEFINE_integer("timeout_seconds", 600, "Longest time of one run.")
flags.DEFINE_string("results", "build/models.jsonl", "File of results.")


def main(argv):
    del argv
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tests.conftest  # noqa: F401  (makes the logical devices)
    from tests.keras_io import processes
    from tests.models.all import MODELS

    counts = [int(count) for count in FLAGS.replicas]
    groups = {name: model.group for name, model in MODELS.items()}
    chosen = processes.chosen(FLAGS.select, groups)
    results, _ = processes.run_missing(
        FLAGS.results,
        ("keras", "tensorflow"),
        dict.fromkeys(chosen, counts),
        records,
        FLAGS.jobs,
        FLAGS.timeout_seconds,
        lambda name, result: (
            "; ".join(complaints(MODELS[name], result))
            or f"{worst(result)[0]:.0e}"
        ),
    )
    heads = ["model", "operations", "with rule", "gathered"]
    heads += [f"largest difference, N={count}" for count in counts]
    print(_line(heads), _line(["---"] * len(heads)), sep="\n")
    for name in chosen:
        print(row(MODELS[name], [results[name, count] for count in counts]))
    found = [
        f"{name} on {count}: {complaint}"
        for name in chosen
        for count in counts
        for complaint in complaints(MODELS[name], results[name, count])
    ]
    for complaint in found:
        print(complaint)
    return 1 if found else 0


def records(name, counts, tell):
    """Tells one record per number of replicas; see `processes.run_all`."""
    import kerasmgpu
    from tests.devices import device_names
    from tests.keras_io import processes
    from tests.models import measuring
    from tests.models.all import MODELS

    model, one = MODELS[name], None
    for count in list(counts):
        # Whatever is raised is the result that the table reports.
        try:
            one = one or measuring.outcome(model)[0]
            strategy = kerasmgpu.MirroredStrategy(device_names(count))
            figures = measuring.measure(model, strategy, one)
            result = dataclasses.asdict(figures)
        except Exception as error:  # noqa: B902
            result = processes.failure(error)
        tell({"ends": count, **result})


def worst(figures):
    """The largest distance, and of what it is."""
    return max(
        (math.inf if math.isnan(distance) else distance, what)
        for what, distance in figures["distances"].items()
    )


def complaints(model, result):
    """What is wrong with a result, as a list of texts."""
    if "error" in result:
        return [f"{result['error']} {result.get('message', '')}".strip()]
    found = []
    distance, what = worst(result)
    if distance > model.tolerance:
        found.append(f"{what} differs by {distance:.1e}")
    if result["copies"]:
        found.append(f"copies differ: {result['copies'][:3]}")
    if result["data_changed"]:
        found.append("fit changed the user's arrays")
    return found


def row(model, results):
    """The table's line of a model; counts are those of the first result."""
    name = f"{model.group}: {model.name}"
    if model.precision != "float64":
        name += f" ({model.precision})"
    first, counts = results[0], ["", "", ""]
    if "error" not in first:
        types = ", ".join(
            f"{n} {kind}" for kind, n in sorted(first["types"].items())
        )
        gathered = f"{first['gathered']} ({types})" if types else "0"
        counts = [first["operations"], first["with_rule"], gathered]
    differences = (
        result["error"] if "error" in result else f"{worst(result)[0]:.0e}"
        for result in results
    )
    return _line([name, *counts, *differences])


def _line(cells):
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    app.run(main)
