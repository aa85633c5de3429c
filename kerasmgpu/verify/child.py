"""One run, as the process `python -m kerasmgpu.verify.child FOLDER`."""

import pathlib
import traceback
from typing import Any

from kerasmgpu.commands import child_processes, search_path, user_errors
from kerasmgpu.errors import InputError

_PHASE = "phase.txt"


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Trains once with the settings of a job; see `training.train`.

    Raises:
        InputError: Instead of any exception of the user's program.
    """
    phase = "starting"

    def enter(name: str) -> None:
        nonlocal phase
        phase = name
        path = pathlib.Path(job["folder"], _PHASE)
        path.write_text(name, encoding="utf-8")

    search_path.enter(job["search_path"])
    try:
        enter("starting TensorFlow")
        from kerasmgpu.verify.training import train

        return train(job, enter)
    except InputError:
        raise
    except Exception as error:
        traceback.print_exc()
        raise InputError(
            f"{phase} raised {user_errors.in_one_line(error)}"
        ) from error


def read_phase(folder: pathlib.Path) -> str:
    """Returns the phase that a run's process entered last."""
    path = folder / _PHASE
    return path.read_text("utf-8") if path.exists() else "starting"


if __name__ == "__main__":
    child_processes.do_job(main)
