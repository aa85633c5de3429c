"""What `python -m tests.models` runs in other processes; it prints JSON."""

import dataclasses
import importlib.util
import json
import warnings

import kerasmgpu
import tests.conftest  # noqa: F401  (makes the logical devices)
from tests.devices import device_names
from tests.models import measuring
from tests.models.all import MODELS


def chosen(parts):
    """Prints names of models whose name or group has one of the parts."""
    names = {}
    for model in MODELS.values():
        called = f"{model.group}: {model.name}".lower()
        if not parts or any(part.lower() in called for part in parts):
            names.setdefault(model.group, []).append(model.name)
    print(json.dumps(names))


def measure(arguments):
    """Prints a line when a model begins, and one when it was measured.

    Args:
        arguments: Numbers of replicas, with commas, and names of models.
    """
    warnings.simplefilter("ignore")
    counts, *names = arguments
    counts = [int(count) for count in counts.split(",")]
    strategies = {
        count: kerasmgpu.MirroredStrategy(device_names(count))
        for count in counts
    }
    for name in names:
        model = MODELS[name]
        record = {
            "name": name,
            "group": model.group,
            "tolerance": model.tolerance,
            "precision": model.precision,
        }
        if model.needs and importlib.util.find_spec(model.needs) is None:
            print(json.dumps({**record, "missing": model.needs}), flush=True)
            continue
        print(json.dumps({**record, "begins": True}), flush=True)
        try:
            record["figures"] = _figures(model, strategies)
        # Whatever is raised is the result that the table reports.
        except Exception as error:  # noqa: B902
            record["error"] = f"{type(error).__name__}: {str(error)[:1000]}"
        print(json.dumps(record), flush=True)


def _figures(model, strategies):
    one, _ = measuring.outcome(model)
    return {
        count: dataclasses.asdict(measuring.measure(model, strategy, one))
        for count, strategy in strategies.items()
    }
