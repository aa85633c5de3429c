"""Files of programs that XLA has compiled, kept from one start to the next.

TensorFlow's names of such files are hashes of what was compiled. Here a file's
name has the function in front and a checksum behind, so that a program is only
given files of its own functions, whole ones.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import stat
import uuid
from collections.abc import Collection, Iterator

from kerasmgpu.atomic_files import TEMPORARY, atomic_write
from kerasmgpu.partitioner.lowering.content_names import PREFIX

MOST_BYTES = 2 << 30
"""Bytes of all files, of all versions and devices."""

_ABANDONED_SECONDS = 3600
"""Age of a temporary file whose writer must have been killed."""

_FUNCTION = re.compile(PREFIX.encode() + rb"[0-9a-f]+")


class XlaFiles:
    """A folder of compiled programs, private to its owner.

    Args:
        folder: `pathlib.Path` of the folder of all versions and devices.
        key: Name of the subfolder for this version and these devices.
        most_bytes: Bytes of all files; the least recently used are removed.

    Raises:
        OSError: If the folder can't be made.
        PermissionError: If it is another user's, or others may write there:
            the files are machine code, which this process runs.
    """

    def __init__(
        self, folder: pathlib.Path, key: str, most_bytes: int = MOST_BYTES
    ) -> None:
        self._root, self._folder = folder, folder / key
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_private(folder)
        self._folder.mkdir(exist_ok=True, mode=0o700)
        require_private(self._folder)

    def link(
        self, functions: Collection[str], target: pathlib.Path
    ) -> dict[str, str]:
        """Links the files of some functions into a folder.

        A file that isn't what it was when it was written, is removed.

        Args:
            functions: Names of the functions.
            target: Path of a folder, where TensorFlow looks for files.

        Returns:
            Dictionary from names of the links to those of the functions.
        """
        wanted = {name.removeprefix(PREFIX) for name in functions}
        linked = {}
        for entry in list(_files(self._folder)):
            function, _, rest = entry.name.partition(".")
            name, _, checksum = rest.rpartition(".")
            if function not in wanted or not name:
                continue
            with contextlib.suppress(FileNotFoundError):  # By another process.
                require_private(entry)
                if _checksum(entry.read_bytes()) != checksum:
                    entry.unlink()
                    continue
                os.utime(entry)  # It was used now.
                _replace_by_link(target / name, entry)
                linked[name] = PREFIX + function
        return linked

    def keep(self, file: pathlib.Path, function: str) -> None:
        """Copies a file that TensorFlow has written, and leaves a link there.

        Args:
            file: Its path.
            function: Name of the function that it is of; see `function_in`.
        """
        content = file.read_bytes()
        digest = function.removeprefix(PREFIX)
        name = f"{digest}.{file.name}."
        if any(one.name.startswith(name) for one in _files(self._folder)):
            return  # Another process was first; its bytes may differ.
        kept = self._folder / (name + _checksum(content))
        with atomic_write(kept, several=True) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
        _replace_by_link(file, kept)

    def trim(self) -> None:
        """Removes the least recently used files, as many as are too many."""
        found = []
        for folder in [self._root, *self._root.iterdir()]:
            if folder.is_dir():
                for file in _files(folder):
                    with contextlib.suppress(FileNotFoundError):
                        status = file.lstat()
                        found.append((status.st_mtime, status.st_size, file))
        now = max((time for time, _, _ in found), default=0.0)
        total = sum(size for _, size, _ in found)
        for time, size, file in sorted(found):
            is_left = (
                file.name.startswith(TEMPORARY)
                and now - time > _ABANDONED_SECONDS
            )
            if total > self._most_bytes or is_left:
                total -= size
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()


def function_in(file: pathlib.Path) -> str | None:
    """The function that TensorFlow has written a file of.

    Returns:
        Its name, or `None` for one that another start won't have.
    """
    found = _FUNCTION.search(file.read_bytes())
    return None if found is None else found[0].decode()


def require_private(path: pathlib.Path) -> None:
    """Raises unless a file or folder is this user's, and others can't write.

    Raises:
        PermissionError: With what was found.
    """
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid() or mode & 0o022:
        raise PermissionError(
            f"{path} must belong to user {os.geteuid()}, and nobody else may "
            f"write there. Received: owner {status.st_uid}, mode {mode:o}; run "
            f"chmod -R go-w {path}, or choose another folder."
        )


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    return (entry for entry in folder.iterdir() if entry.is_file())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _replace_by_link(path: pathlib.Path, target: pathlib.Path) -> None:
    """Replaces a file by a link, at once: TensorFlow may be reading it."""
    link = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    link.symlink_to(target)
    os.replace(link, path)
