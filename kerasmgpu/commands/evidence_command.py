"""Makes a table of what `kerasmgpu.callbacks.Audit` found in runs.

    kerasmgpu evidence runs/*/evidence.json
    kerasmgpu evidence runs/1/evidence.json runs/2/evidence.json --output=table.md

A row per file, in Markdown, with the columns of `docs/gpus.md`: the model, its
devices and settings, the largest difference of a layer, and the worst verdict. The
exit status is 0 only if every run was compared, and is equal to one device's.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.callbacks.audit_verdict import EQUAL, FORMAT, ROUNDING
from kerasmgpu.commands import flag_parsing, reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.errors import InputError, printable
from kerasmgpu.hardware import data_sheets
from kerasmgpu.stores.places import checked_place

_EQUAL = (EQUAL, ROUNDING)
_TYPES = {"devices": list, "settings": dict, "largest_differences": dict}
_COLUMNS = (
    "model",
    "devices",
    "replicas",
    "settings",
    "steps compared",
    "largest difference",
    "verdict",
)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_output(
        flag_values, "File to write the table to, in Markdown."
    )
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Prints the table of the files in `argv`."""
    paths, output = argv[1:], flags.FLAGS.output
    if not paths:
        raise InputError(
            "evidence takes files of kerasmgpu.callbacks.Audit. Received: none; "
            "pass them, such as runs/1/evidence.json"
        )
    reports.require_file_in_folder(output)
    runs = [read(path) for path in paths]
    text = table(runs)
    print(text, end="")
    if output:
        write_text(output, text)
    sys.exit(0 if all(run["verdict"] in _EQUAL for run in runs) else 1)


def read(path: str) -> dict[str, Any]:
    """Returns the contents of a file of `Audit`.

    Raises:
        InputError: If there is none, or it isn't one.
    """
    try:
        found = json.loads(checked_place(path, "a file").read_text("utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or "no JSON"
        raise InputError(
            "evidence takes files of kerasmgpu.callbacks.Audit. Received: "
            f"{printable(path)} ({reason})"
        ) from error
    is_ours = isinstance(found, dict) and found.get("format") == FORMAT
    if not is_ours or not all(
        isinstance(found.get(name), kind) for name, kind in _TYPES.items()
    ):
        raise InputError(
            f"evidence takes files whose format is {FORMAT!r}. Received: "
            f"{printable(path)}, which is another file"
        )
    return found


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns a Markdown table, with a row per run.

    Args:
        runs: Sequence of what `read` returns.
    """
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *map(_cells, runs)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    cells = (
        run.get("model", "?"),
        data_sheets.counted(run["devices"]),
        run.get("replicas", "?"),
        _settings(run),
        run.get("steps_compared", "?"),
        _largest(run["largest_differences"]),
        run.get("verdict", "?"),
    )
    return tuple(printable(str(cell)).replace("|", "\\|") for cell in cells)


def _settings(run: Mapping[str, Any]) -> str:
    shown = [f"{k}={v}" for k, v in run["settings"].items()]
    shown += [str(run.get("precision", ""))]
    if run.get("xla") == "True":
        shown.append("XLA")
    if run.get("workers", 1) > 1:
        shown.append(f"{run['workers']} workers")
    return ", ".join(filter(None, shown))


def _largest(differences: Mapping[str, float | None]) -> str:
    """Returns the largest difference and its layer; `null` is infinity."""
    if not differences:
        return "–"
    value, layer = max(
        (math.inf if value is None else value, layer)
        for layer, value in differences.items()
    )
    size = f"{value:.0e}" if math.isfinite(value) else "infinite"
    return f"{size} ({layer})"


if __name__ == "__main__":
    start(main, define_flags)
