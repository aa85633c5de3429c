"""The shared secret of the workers of a run.

The launcher writes it to a file for each worker. The worker reads the file and
deletes it before TensorFlow opens its port, because anyone who reaches that
port can read files and environment variables (`docs/security.md`). An
environment variable would stay in `/proc/PID/environ` for the life of the
process. Imports no TensorFlow.
"""

import contextlib
import os
import tempfile
from collections.abc import Mapping

from absl import logging

from kerasmgpu.errors import InputError

VARIABLE = "KERASMGPU_JOB_TOKEN"
"""Environment variable in which users may set a token."""

FILE_VARIABLE = "KERASMGPU_JOB_TOKEN_FILE"
"""Environment variable with the path of a worker's token file."""


def write(token: str) -> str:
    """Writes a token to a new file that only this user can read.

    Returns:
        String, the file's path.
    """
    number, path = tempfile.mkstemp(prefix="kerasmgpu-token-")
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(token)
    return path


def read(environ: Mapping[str, str] = os.environ) -> str:
    """Returns this run's token, from the launcher or else from the user.

    Args:
        environ: Mapping of environment variables. Defaults to `os.environ`.

    Returns:
        String; empty without a token, or if an earlier process deleted the
        launcher's file (see `discard`).

    Raises:
        InputError: If the launcher's file can't be read.
    """
    path = environ.get(FILE_VARIABLE)
    if not path:
        return environ.get(VARIABLE, "")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        logging.warning(
            "kerasmgpu: an earlier process of this worker has used the token "
            "of this run; its workers now identify one another by address only."
        )
        return ""
    except OSError as error:
        raise InputError(
            f"Can't read {path} ({FILE_VARIABLE}): {error.strerror}. A worker "
            "must run as the user of its launcher, and see its files"
        ) from None


def discard(environ: Mapping[str, str] = os.environ) -> None:
    """Deletes this worker's token file, if any; called after the rendezvous."""
    path = environ.get(FILE_VARIABLE)
    if path:
        delete(path)


def delete(path: str) -> None:
    """Deletes a worker's token file, if it still exists."""
    with contextlib.suppress(
        OSError
    ):  # The worker deleted it first, or /tmp is gone.
        os.unlink(path)
