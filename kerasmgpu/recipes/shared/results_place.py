"""The last lines of a recipe: where its results are, and what shows them."""

import shlex

from kerasmgpu.errors import InputError
from kerasmgpu.report import run_files
from kerasmgpu.stores.places import place
from kerasmgpu.stores.store_path import StorePath

_NAMES = (
    "result.json",
    "history.jsonl",
    "model.keras",
    "learning_curve.png",
    "placements.json",
    "runs.json",
    "accuracy_by_batch.png",
)


def lines(output_dir: str | None) -> tuple[str, str]:
    """Returns two lines about the folder of a run that has ended."""
    if output_dir is None:
        return (
            "results: printed above, and not kept; --output_dir=FOLDER keeps "
            "history, model and learning curve",
            "to show them then: kerasmgpu report FOLDER",
        )
    folder = place(output_dir)
    names = [name for name in _NAMES if (folder / name).exists()]
    commands = []
    quoted = shlex.quote(str(folder))
    try:
        run_files.read([folder])
        commands.append(f"kerasmgpu report {quoted}")
    except InputError:  # The study of batch sizes keeps a record per run.
        commands += [
            f"python -m json.tool {shlex.quote(str(folder / name))}"
            for name in names
            if name.endswith(".json")
        ]
    if not isinstance(folder, StorePath) and any(folder.rglob("*.tfevents.*")):
        commands.append(f"tensorboard --logdir={quoted}")
    return (
        f"results: {folder} ({', '.join(names) or 'nothing was trained'})",
        f"to show them: {' ; '.join(commands) or f'ls {quoted}'}",
    )
