"""Files of programs that XLA has compiled, kept from one start to the next.

TensorFlow's names of such files are hashes of what was compiled. Here a file's
name has the function and a checksum in front, so that a program is only given
files of its own functions, whole ones.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import re
import stat
import uuid
from collections.abc import Collection, Iterator, Mapping

from kerasmgpu.atomic_files import TEMPORARY, atomic_write
from kerasmgpu.engine import xla_versions
from kerasmgpu.partitioner.lowering.content_names import PREFIX

MOST_BYTES = 2 << 30
"""Bytes of all files, of all versions and devices."""

_ABANDONED_SECONDS = 3600
"""Age of a temporary file whose writer must have been killed."""

_CHECKED = re.compile(rb"\+(?=avx512|prefer-(?:no-gather|no-scatter|\d+-bit))")
"""Features that TensorFlow must not look for in the processor that loads a program.

For AVX-512, XLA adds `prefer-no-gather` and `prefer-no-scatter`, when it compiles
and when it loads. These are tuning, not features of a processor, so it logs two
errors that end in "SIGILL" for each program. (Seen with TensorFlow 2.21.) Of the
features in a file nothing is compiled any more, and files are kept by processor
and features (`xla_versions.py`), so that one with others gets none of them."""

_FUNCTION = re.compile(PREFIX.encode() + rb"[0-9a-f]+")


class XlaFiles:
    """A folder of compiled programs, private to its owner.

    Args:
        folder: `pathlib.Path` of the folder of all versions and devices. It
            has a subfolder for each, and beside it a file that describes it.
        versions: Dictionary, what programs depend on; see `xla_versions`.
        most_bytes: Bytes of all files; the least recently used are removed.

    Raises:
        OSError: If the folder can't be made.
        PermissionError: If it is another user's, or others may write there:
            the files are machine code, which this process runs.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        versions: Mapping[str, str],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        key = xla_versions.digest(versions)
        self._root, self._folder = folder, folder / key
        self._most_bytes = most_bytes
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        require_private(folder)
        self._folder.mkdir(exist_ok=True, mode=0o700)
        require_private(self._folder)
        description = folder / f"{key}.json"
        text = json.dumps(dict(versions), indent=2)
        if not description.exists() or description.read_text("utf-8") != text:
            with atomic_write(description, several=True) as temporary:
                temporary.write_text(text, encoding="utf-8")

    def link(
        self, functions: Collection[str], target: pathlib.Path
    ) -> dict[str, str]:
        """Links the files of some functions into a folder.

        A file that isn't what it was when it was written, is removed, and so is
        one in which TensorFlow would look for `_CHECKED`.

        Args:
            target: Path of a folder, where TensorFlow looks for files.

        Returns:
            Dictionary from names of the links to those of the functions.
        """
        wanted = {name.removeprefix(PREFIX) for name in functions}
        linked = {}
        for entry in list(_files(self._folder)):
            function, _, rest = entry.name.partition(".")
            checksum, _, name = rest.partition(".")
            if function not in wanted or not name:
                continue
            with contextlib.suppress(FileNotFoundError):  # By another process.
                require_private(entry)
                content = entry.read_bytes()
                if _checksum(content) != checksum or _CHECKED.search(content):
                    with _unless_read_only():
                        entry.unlink()
                    continue
                with _unless_read_only():
                    os.utime(entry)  # It was used now.
                _replace_by_link(target / name, entry)
                linked[name] = PREFIX + function
        return linked

    def keep(self, file: pathlib.Path, function: str) -> None:
        """Copies a file that TensorFlow has written, and leaves a link there.

        The copy has `_CHECKED` as features that the program doesn't need, in as
        many bytes. Other features are compared as before.

        Args:
            function: Name of the function that it is of; see `function_in`.
        """
        content = _CHECKED.sub(b"-", file.read_bytes())
        digest = function.removeprefix(PREFIX)
        if self._first_of(digest, file.name) is not None:
            return  # Another process was first; its bytes may differ.
        kept = self._folder / f"{digest}.{_checksum(content)}.{file.name}"
        with atomic_write(kept, several=True) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(content)
        first = self._first_of(digest, file.name)
        if first is not None and first != kept:  # Both wrote at once.
            kept.unlink()
            kept = first
        _replace_by_link(file, kept)

    def _first_of(self, digest: str, name: str) -> pathlib.Path | None:
        """The oldest of the files of a program, whatever their checksums."""
        found = []
        for file in _files(self._folder):
            function, _, rest = file.name.partition(".")
            if function == digest and rest.partition(".")[2] == name:
                with contextlib.suppress(FileNotFoundError):
                    found.append((file.stat().st_mtime_ns, file.name, file))
        return min(found)[-1] if found else None

    def trim(self) -> None:
        """Removes the least recently used files, as many as are too many."""
        found = []
        for folder in filter(pathlib.Path.is_dir, self._root.iterdir()):
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


def descriptions(folder: pathlib.Path) -> dict[str, dict[str, str]]:
    """Returns for which versions and devices a folder has programs.

    Returns:
        Dictionary from names of subfolders to what `XlaFiles` was given. One
        whose description is damaged is left out.
    """
    found = {}
    for path in folder.glob("*.json"):
        if path.with_suffix("").is_dir():
            with contextlib.suppress(ValueError):
                found[path.stem] = json.loads(path.read_text("utf-8"))
    return found


def sizes(folder: pathlib.Path) -> list[int]:
    """Returns the bytes of each program in a subfolder."""
    return [
        entry.stat().st_size
        for entry in _files(folder)
        if not entry.name.startswith(TEMPORARY)
    ]


def function_in(file: pathlib.Path) -> str | None:
    """The function that TensorFlow has written a file of.

    Returns:
        Its name, or `None` for one that another start won't have.
    """
    found = _FUNCTION.search(file.read_bytes())
    return None if found is None else found[0].decode()


def require_private(path: pathlib.Path) -> None:
    """Raises unless a file or folder is this user's or root's alone to change.

    Raises:
        PermissionError: With what was found.
    """
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (0, os.geteuid()) or mode & 0o022:
        raise PermissionError(
            f"{path} must belong to user {os.geteuid()}, and nobody else may "
            f"write there. Received: owner {status.st_uid}, mode {mode:o}; run "
            f"chmod -R go-w {path}, or choose another folder."
        )


@contextlib.contextmanager
def _unless_read_only() -> Iterator[None]:
    """Context for a change of a folder that may be only to be read."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    return (entry for entry in folder.iterdir() if entry.is_file())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _replace_by_link(path: pathlib.Path, target: pathlib.Path) -> None:
    """Replaces a file by a link, at once: TensorFlow may be reading it."""
    link = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    link.symlink_to(target)
    os.replace(link, path)
