"""Goldens of the commands, for changes that must change nothing they report.

    python -m tests.goldens --store --folder=before   # before a change
    python -m tests.goldens --folder=before           # after it

Reports of small models as JSON: `memory` under each of `SETTINGS`, `flops`, what
`plan` predicts at fixed rates, `layout_report` and `find_layout`. Steps are
traced and written, and nothing runs. Each difference is printed as path, before
and after; the exit status is 1 if there is any.
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import pathlib
import sys

from kerasmgpu.errors import InputError

MODELS = (
    "gpt like",
    "vision transformer",
    "u net",
    "mixture of experts",
    "bidirectional gru with a mask",
    "stacked lstm with a mask",
    "wavenet",
    "volumes",
    "super resolution",
    "own loop over time",
    "low rank adapters",
    "call that is computed again",
    "mixed float16",
    "wide and deep",
    "triplets",
    "variational autoencoder with an added loss",
    "Adam",
    "Adafactor",
    "Muon",
    "gradient accumulation",
)
"""Names of the table of models of `benchmarks.exactness`."""

SETTINGS = {
    "none": {},
    "optimizer": {"shard": "optimizer"},
    "weights": {"shard": "weights"},
    "groups": {"shard": "weights", "shard_over": 2},
    "offload": {"shard": "weights", "offload": "optimizer"},
    "recompute": {"recompute": "elementwise"},
    "micro-batches": {"shard": "weights", "micro_batches": 2},
    "workers": {"shard": "weights", "replicas_per_worker": 2},
    "CPUs": {"shard": "weights", "device_type": "CPU"},
}
"""Arguments of `kerasmgpu memory` for four replicas."""

MESH = (2, 2)

SEARCHED = ("Adam", "triplets", "super resolution")
"""Models for which a layout is found: those that have few variables."""

_GOLDENS = "goldens.json"


def main(argv=None):
    """Stores, or compares and prints what differs; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", required=True)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--models", default=",".join(MODELS))
    arguments = parser.parse_args(argv)
    path = pathlib.Path(arguments.folder, _GOLDENS)
    if not arguments.store and not path.exists():
        parser.error(f"{path} does not exist: call with --store before")
    names = arguments.models.split(",")
    found = {}
    # A process for each model: TensorFlow keeps all that it has traced.
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, maxtasksperchild=1) as pool:
        for name, reports in pool.imap_unordered(reports_of, names):
            found[name] = reports
            print(f"{len(found)} of {len(names)}: {name}", flush=True)
    if arguments.store:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, sort_keys=True), "utf-8")
        print(f"Reports of {len(found)} models are stored in {path}.")
        return 0
    stored = json.loads(path.read_text("utf-8"))
    return compared({name: stored.get(name) for name in names}, found)


def compared(before, after):
    """Prints the differences of reports; returns the exit status."""
    lines = list(differences(before, after))
    print("\n".join([*lines, f"{len(lines)} differences."]))
    return 1 if lines else 0


def differences(before, after, path=""):
    """Yields a line for each value that differs: path, before, after."""
    if isinstance(before, list) and isinstance(after, list):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before | after:
            values = (one.get(key, "missing") for one in (before, after))
            yield from differences(*values, f"{path}/{key}")
    elif before != after:
        yield f"{path}: {before} -> {after}"


def reports_of(name):
    """Returns a model's name, and the reports of each command by setting."""
    from benchmarks.exactness.registry import cases
    from tests import conftest  # noqa: F401 - Eight logical CPU devices.
    from tests.prove import tables

    make = tables.programs("models")[name]
    with cases("models")[name].in_precision():
        step = tables.traced(make)
        reports = {
            f"memory, {key}": memory(step, **settings)
            for key, settings in SETTINGS.items()
        }
        reports["flops"] = flops = counted_flops(step)
        reports["plan"] = planned(step, flops)
        on_mesh = tables.traced(make, on_mesh=True)
        reports["memory, mesh"] = memory(on_mesh, shard="none")
        reports["plan, mesh"] = planned_on_mesh(on_mesh)
        reports |= dict(layouts(make, name in SEARCHED))
    return name, plain(reports)


def _or_refused(function, *arguments):
    """Returns a report, or why there is none: workers send no text, for example."""
    try:
        return function(*arguments)
    except InputError as error:
        return {"refused": str(error)}


@contextlib.contextmanager
def _given(step):
    """Commands that trace a model in a process of their own take this step."""
    from unittest import mock

    from kerasmgpu.commands import traced_step

    fields = dataclasses.fields(traced_step.TracedStep)
    plain = {field.name: getattr(step, field.name) for field in fields}

    def traced(job):
        return step.model, traced_step.TracedStep(**plain)

    with mock.patch.object(traced_step, "trace_job", traced):
        yield


def memory(step, shard="none", micro_batches=1, **settings):
    """What `kerasmgpu memory` counts for a step; see `SETTINGS`."""
    from kerasmgpu.memory import counting

    job = {
        "shard": [shard],
        "replicas": [4],
        "until_it_fits": False,
        "micro_batches": [micro_batches],
        "batch_size_per_replica": None,
        "replicas_per_worker": settings.pop("replicas_per_worker", None),
        "device_type": settings.pop("device_type", "GPU"),
        "usable": None,
        "settings": {"min_shard_bytes": 0, **settings},
    }
    with _given(step):
        return _or_refused(counting.main, job)


def counted_flops(step):
    """What `kerasmgpu flops` counts for a step."""
    from kerasmgpu.commands import flops_counting

    with _given(step):
        return flops_counting.main({"device": "H100-SXM"})


def _machines():
    from kerasmgpu.plan.link_rates import link
    from kerasmgpu.plan.step_time import Machines

    return Machines(2, link("nvlink3"), link("100gbit"))


def _seconds(step, flops):
    """A step's time at a fixed rate, with that of launching its kernels."""
    from kerasmgpu.plan.step_time import Step

    seconds = 1e-4 + (flops["flops_per_step"] or 0) / 1e12
    return Step(step.rows, seconds, 4.0 * flops["parameters"], 1e-4, 5e-5)


def planned(step, flops):
    """What `kerasmgpu plan` predicts, weakly and strongly scaled."""
    from kerasmgpu.plan.scaling_prediction import plan

    counts = [2, 4, 16]
    return [
        plan(_seconds(step, flops), _machines(), counts, rows)
        for rows in (None, 64)
    ]


def planned_on_mesh(step):
    """What `kerasmgpu plan` predicts for the mesh of a step."""
    from kerasmgpu.plan import mesh_counting, scaling_prediction
    from kerasmgpu.plan.mesh_time import MeshAxis, predict_mesh

    flops = counted_flops(step)
    with _given(step):
        found = mesh_counting.main({"replicas_per_machine": 2})
    axes = [MeshAxis(**axis) for axis in found["axes"]]
    of_one = _seconds(step, flops)
    predicted = predict_mesh(of_one, _machines(), axes, found["compute_share"])
    return [found, scaling_prediction.plan_mesh(of_one, predicted)]


def layouts(make, is_searched):
    """Yields reports of `layout_report`, and of `find_layout` if that is asked."""
    import keras

    import kerasmgpu
    from tests.parity.meshes import both_divided
    from tests.strategies.sharded import mirrored

    strategies = {
        "weights": lambda: mirrored(4, "weights"),
        "groups": lambda: mirrored(4, "weights", shard_over=2),
        "offload": lambda: mirrored(4, "weights", offload="optimizer"),
        "mesh": lambda: kerasmgpu.strategy(distribution=both_divided(MESH)),
    }
    for key, strategy in strategies.items():
        keras.backend.clear_session()
        with strategy().scope():
            model, batch = make()
        report = _or_refused(kerasmgpu.layout_report, model, batch)
        yield f"layout_report, {key}", plain(report)
    if is_searched:
        keras.backend.clear_session()
        with kerasmgpu.strategy(num_replicas=1).scope():
            model, batch = make()
        yield "find_layout", plain(kerasmgpu.find_layout(model, batch, MESH))


def plain(value):
    """Returns a value as JSON has it: dictionaries whose keys are texts, lists."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return (
        list(map(plain, value)) if isinstance(value, (list, tuple)) else value
    )


if __name__ == "__main__":
    sys.exit(main())
