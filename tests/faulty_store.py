"""A file system behind fsspec that fails as object stores do.

    faulty:///tmp/folder/run/1

Objects are files, so that processes share them. An object is replaced at once
when it is put, and there are no renames. `FAULTS` says what goes wrong.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import time
import uuid

import fsspec
from fsspec.implementations.local import LocalFileSystem

_HALF = ".half-"


class Killed(BaseException):
    """Stands for the kill of the process, at an operation of the store."""


@dataclasses.dataclass
class Faults:
    """What goes wrong.

    Attributes:
        failing: Share of the operations that fail, before or after they took
            place.
        always: Names of operations that fail each time.
        slow: Share of the puts that take `seconds`.
        late: Seconds in which a listing lacks a new object, and still has a
            deleted one.
        kill_in: Number of operations until `Killed` is raised, or `None`.
        done: List of the names of the operations so far.
    """

    failing: float = 0.0
    always: tuple[str, ...] = ()
    slow: float = 0.0
    seconds: float = 0.02
    late: float = 0.0
    kill_in: int | None = None
    chance: random.Random = dataclasses.field(
        default_factory=lambda: random.Random(1)
    )
    done: list[str] = dataclasses.field(default_factory=list)

    def strike(self, name):
        self.done.append(name)
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                raise Killed
        if name in self.always:
            raise OSError("503 Slow Down")
        if self.chance.random() < self.failing / 2:
            raise ConnectionError("connection reset by peer")


FAULTS = Faults()


def set_faults(**faults):
    """Sets `FAULTS`; what isn't named doesn't go wrong."""
    for field in dataclasses.fields(Faults):
        setattr(FAULTS, field.name, getattr(Faults(**faults), field.name))
    return FAULTS


def _faulty(name):
    """An operation of local files, with faults before and after it."""

    def operation(self, *args, **kwargs):
        FAULTS.strike(name)
        result = getattr(LocalFileSystem, name)(self, *args, **kwargs)
        FAULTS.strike(name)
        return result

    return operation


def _written_at(path):
    """When the first file of a name, or of names below it, was written."""
    if os.path.isdir(path):
        entries = [entry.path for entry in os.scandir(path)]
        return min(map(_written_at, entries), default=0)
    return os.stat(path).st_mtime


class FaultyStore(LocalFileSystem):
    """See the module."""

    protocol = "faulty"

    info, cat_file = _faulty("info"), _faulty("cat_file")
    get_file = _faulty("get_file")

    def __init__(self, **options):
        super().__init__(auto_mkdir=True, **options)
        self.deleted = {}

    @classmethod
    def _strip_protocol(cls, path):
        return str(path).removeprefix("faulty://").rstrip("/")

    def put_file(self, lpath, rpath, **kwargs):
        FAULTS.strike("put_file")
        if FAULTS.chance.random() < FAULTS.slow:
            time.sleep(FAULTS.seconds)
        self._replace(rpath, pathlib.Path(lpath).read_bytes())
        FAULTS.strike("put_file")

    def pipe_file(self, path, value, **kwargs):
        FAULTS.strike("pipe_file")
        self._replace(path, value)
        FAULTS.strike("pipe_file")

    def cp_file(self, path1, path2, **kwargs):
        FAULTS.strike("cp_file")
        self._replace(path2, pathlib.Path(path1).read_bytes())

    def _replace(self, path, data):
        whole = pathlib.Path(path)
        whole.parent.mkdir(parents=True, exist_ok=True)
        half = whole.with_name(f"{_HALF}{uuid.uuid4().hex}")
        half.write_bytes(data)
        os.replace(half, whole)

    def rm_file(self, path):
        FAULTS.strike("rm_file")
        os.unlink(path)
        self.deleted[path] = time.time()
        # There are no folders, only names that begin with one.
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))
        FAULTS.strike("rm_file")

    def ls(self, path, detail=False, **kwargs):
        FAULTS.strike("ls")
        since = time.time() - FAULTS.late
        names = [
            one
            for one in super().ls(path, detail=False)
            if _HALF not in one and _written_at(one) <= since
        ]
        for one, at in self.deleted.items():
            if at > since and os.path.dirname(one) == path:
                names.append(one)
        return names

    def mv(self, *args, **kwargs):
        raise NotImplementedError("a store renames nothing")

    mv_file = mv


fsspec.register_implementation("faulty", FaultyStore, clobber=True)
