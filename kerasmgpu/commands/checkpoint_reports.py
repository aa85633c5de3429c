"""Shows, verifies and converts checkpoints, for `checkpoint_command`."""

import json
from typing import Any

from kerasmgpu.callbacks.checkpoints import converting, file_format
from kerasmgpu.callbacks.checkpoints.folder import is_whole
from kerasmgpu.callbacks.checkpoints.store_folder import folder_at
from kerasmgpu.callbacks.checkpoints.stored import Stored
from kerasmgpu.commands import reports
from kerasmgpu.errors import InputError
from kerasmgpu.stores.places import Place, num_bytes, place

_KINDS = {
    ".npz": "a checkpoint",
    ".h5": "Keras's weights",
    ".keras": "Keras's model",
}
"""What the suffixes of `converting.convert` stand for."""


def show(path: str, as_json: bool = False) -> dict[str, Any]:
    """Prints what a checkpoint holds: its position, files and variables.

    Args:
        path: String, a checkpoint, or the directory of a run.

    Returns:
        Dictionary: `"checkpoint"`, its path; `"epoch"` and `"step"`; `"keras"`
        and `"tensorflow"`, versions; `"bytes"` by file; and `"variables"`, a
        list of dictionaries with `"path"`, `"kind"`, `"shape"`, `"dtype"` and
        `"pieces"`, the number of parts.

    Raises:
        InputError: If there is none, or it is damaged.
    """
    newest = _checkpoints(path)[-1]
    try:
        with Stored(newest, peek=True) as stored:
            report = _report(stored)
    except file_format.DamagedFileError as error:
        raise InputError(f"{newest} is damaged: {error}") from error
    if as_json:
        print(json.dumps(report, indent=2))
        return report
    console = reports.console()
    table = reports.table(
        str(newest), "variable", "kind", "dtype", right=("shape", "pieces")
    )
    for one in report["variables"]:
        shape = " × ".join(map(str, one["shape"])) or "()"
        table.add_row(
            one["path"], one["kind"], one["dtype"], shape, str(one["pieces"])
        )
    console.print(table)
    sizes, epoch, step = report["bytes"], report["epoch"], report["step"]
    done = f"epoch {epoch + 1}, step {step}" if step else f"{epoch} epochs done"
    reports.say(
        console,
        f"{done}; "
        f"{len(report['variables'])} variables, {sum(sizes.values()):,} bytes in "
        f"{len(sizes)} file{'s' if len(sizes) > 1 else ''}; Keras {report['keras']}, "
        f"TensorFlow {report['tensorflow']}",
    )
    return report


def _report(stored: Stored) -> dict[str, Any]:
    manifest = stored.manifest
    progress = dict(manifest["progress"]["dict"])
    return {
        "checkpoint": str(stored.path),
        "epoch": progress["epoch"],
        "step": progress["step"],
        "keras": manifest["keras"],
        "tensorflow": manifest["tensorflow"],
        "bytes": {path.name: num_bytes(path) for path in stored.files},
        "variables": [
            {
                **{key: one[key] for key in ("path", "kind", "shape", "dtype")},
                "pieces": stored.num_pieces(index),
            }
            for index, one in enumerate(manifest["variables"])
        ],
    }


def verify(path: str) -> bool:
    """Reads checkpoints whole, and prints which are damaged.

    Args:
        path: String, a checkpoint, or the directory of a run: all are read.

    Returns:
        Boolean, whether all are undamaged.
    """
    console, is_whole = reports.console(), True
    for checkpoint in _checkpoints(path):
        try:
            with Stored(checkpoint) as stored:
                stored.verify()
        except (file_format.DamagedFileError, OSError) as error:
            is_whole = False
            reports.say(console, f"{checkpoint}: damaged ({error})")
        else:
            reports.say(console, f"{checkpoint}: whole")
    return is_whole


def convert(source: str, target: str, like: str | None = None) -> None:
    """Converts a checkpoint, or weights of Keras into one, and says so.

    Args:
        source: String, a checkpoint, the directory of a run, or a `.keras` or
            `.weights.h5` file.
        target: String, a new path; its ending says what is written.
        like: String, file with what the source lacks: for a `.keras` file
            another one of the same model; for Keras's weights a checkpoint.
            Default: none.

    Raises:
        InputError: If something is missing, damaged, or of another model.
    """
    path = _one(source)
    rest = None if like is None else _one(like)
    new = place(target)
    try:
        converting.convert(path, new, rest)
    except file_format.DamagedFileError as error:
        raise InputError(f"{path} is damaged: {error}") from error
    files = [file for file in (new, *new.glob("*")) if file.is_file()]
    size = sum(num_bytes(file) for file in files)
    kind = "a sharded checkpoint" if new.is_dir() else _KINDS[new.suffix]
    reports.say(
        reports.console(), f"wrote {new}: {kind}, {size:,} bytes, of {path}"
    )


def _one(path: str) -> Place:
    """Returns a file, a checkpoint, or the newest one of a run."""
    found = place(path)
    return found if found.is_file() else _checkpoints(path)[-1]


def _checkpoints(path: str) -> list[Place]:
    """Returns the checkpoint at a path, or those of a run, oldest first."""
    where = place(path)
    if where.is_file() or is_whole(where):
        return [where]
    if not where.exists():
        raise InputError(f"no such file or folder. Received: {path}")
    for folder in (where, where / "checkpoints"):  # As `default` has it.
        if found := folder_at(folder, keep=1).files():
            return found
    raise InputError(
        "a checkpoint, or the directory of a run that has some, is "
        f"expected. Received: {path}"
    )
