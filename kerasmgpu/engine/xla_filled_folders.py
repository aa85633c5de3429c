"""Folders of compiled programs that were filled ahead of a job."""

import json
import pathlib
from collections.abc import Mapping

from absl import logging

from kerasmgpu.atomic_files import write_text
from kerasmgpu.engine import xla_files, xla_versions
from kerasmgpu.errors import InputError

_FILE = "compiled.json"
"""What `kerasmgpu compile` leaves in a folder that it has filled."""

_said: set[pathlib.Path] = set()
"""Folders of which this process has said what is there."""


def add_command(folder: pathlib.Path, command: str) -> None:
    """Records that a folder was filled ahead.

    Args:
        command: String, the arguments of `kerasmgpu compile`.
    """
    commands = [*(commands_of(folder) or ()), command]
    text = json.dumps(list(dict.fromkeys(commands)), indent=2)
    write_text(folder / _FILE, f"{text}\n")


def commands_of(folder: pathlib.Path) -> list[str] | None:
    """Returns the commands that have filled a folder, or `None`."""
    try:
        return json.loads((folder / _FILE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:  # Copied in part.
        return []


def look_into(folder: pathlib.Path, versions: Mapping[str, str]) -> None:
    """Says in one line what is in a folder that the user has chosen.

    Args:
        folder: `pathlib.Path`; need not exist.
        versions: Dictionary of this process; see `xla_versions`.

    Raises:
        InputError: If it was filled ahead, but not for this version of
            TensorFlow on these devices.
    """
    found = xla_files.descriptions(folder)
    own = folder / xla_versions.digest(versions)
    closest = min(
        (xla_versions.differences(one, versions) for one in found.values()),
        key=len,
        default=["no programs there"],
    )
    differing = "; ".join(closest)
    if not own.is_dir() and commands_of(folder) is not None:
        raise InputError(
            f"{folder} was filled by kerasmgpu compile, not for this version and "
            f"device ({differing}). Run kerasmgpu compile on a machine like this "
            "one, or choose another folder."
        )
    if folder in _said:
        return
    _said.add(folder)
    if not found:
        return
    number = len(xla_files.sizes(own)) if own.is_dir() else 0
    logging.info(
        "kerasmgpu: compiled programs in %s for this version of TensorFlow and "
        "these devices: %d%s.",
        folder,
        number,
        "" if own.is_dir() else f" ({differing})",
    )
