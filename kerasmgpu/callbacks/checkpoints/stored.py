"""Reads a checkpoint, one file or a folder of parts, without holding it whole.

    checkpoint-000003-000000120/index.npz        manifest, pieces, checksums
    checkpoint-000003-000000120/part-00000.npz   arrays of the first worker
    checkpoint-000003-000000120/part-00001.npz   …

Each file is a `file_format` file. A piece is a part of a variable that one
worker wrote. The index is written last: a folder without one is no checkpoint.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np

from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.stores.places import Place, opened, peeked

INDEX = "index.npz"

_THREADS = 4
"""Number of reads at a time, which hides the latency of a file system."""


def part_name(worker: int) -> str:
    """Returns the name of a worker's file in the folder of a checkpoint."""
    return f"part-{worker:05d}.npz"


class Piece(NamedTuple):
    """A part of a variable in a file.

    Attributes:
        file: Integer, the worker that wrote it.
        array: Integer, index of the array in that worker's file.
        start: Sequence of integers, the first element along each axis.
        shape: Sequence of integers.
        dtype: String, the name of its type.
    """

    file: int
    array: int
    start: Sequence[int]
    shape: Sequence[int]
    dtype: str


class Sliceable(Protocol):
    """An array of which parts can be read: of NumPy, or in files."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    def __getitem__(self, box: Any) -> np.ndarray:
        """Returns a part (slices with a start and a stop), or all of it (…)."""


class Stored:
    """A checkpoint on disk; a context manager that closes its files.

    Args:
        path: Path of a file or a folder, or `StorePath` of one: its files are
            copied to temporary ones when they are read.
        peek: Boolean, whether only the manifest is asked for, for which no
            file is copied. Defaults to `False`.

    Attributes:
        manifest: Dictionary; see `file_format`.
        extra: List of the NumPy arrays that are no variables.
        is_sharded: Boolean, whether it is a folder.

    Raises:
        DamagedFileError: If it is damaged or no checkpoint; in methods, too.
        OSError: If it can't be read; in methods, too.
    """

    def __init__(self, path: Place, peek: bool = False) -> None:
        self.path: Any = path
        self.is_sharded = path.is_dir()
        self._opened = peeked if peek else opened
        self._open = contextlib.ExitStack()
        self._readers: dict[int, file_format.Reader] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)
        self._open.enter_context(self._pool)
        main = self._reader_of(path / INDEX if self.is_sharded else path)
        self.manifest = main.manifest
        num_variables = len(self.manifest["variables"])
        first_extra = 0 if self.is_sharded else num_variables
        self.extra = [main.array(i) for i in range(first_extra, len(main))]
        self._pieces: list[list[Piece]] = [[] for _ in range(num_variables)]
        for variable, *piece in self.manifest.get("pieces", ()):
            self._pieces[variable].append(Piece(*piece))
        self._main = main

    def __enter__(self) -> "Stored":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def files(self) -> list[Any]:
        """The checkpoint's files, the index last."""
        if not self.is_sharded:
            return [self.path]
        parts = map(part_name, range(len(self.manifest["sha256s"])))
        return [self.path / name for name in (*parts, INDEX)]

    def verify(self, share: int = 0, num_shares: int = 1) -> None:
        """Verifies the checksums of all files, or of a share of them.

        Args:
            share: Integer, this worker's index.
            num_shares: Integer, number of workers that verify together.
        """
        if not self.is_sharded:
            self._main.verify()
            return
        self._main.verify()
        numbers = range(share, len(self.manifest["sha256s"]), num_shares)
        list(self._pool.map(self._verify_part, numbers))

    def _verify_part(self, number: int) -> None:
        path = self.path / part_name(number)
        try:
            with opened(path) as file:
                reader = file_format.Reader(file)
                if reader.sha256 != self.manifest["sha256s"][number]:
                    raise file_format.DamagedFileError("another save wrote it")
                reader.verify()
        except (file_format.DamagedFileError, FileNotFoundError) as error:
            reason = getattr(error, "strerror", None) or error
            raise file_format.DamagedFileError(
                f"{path.name}: {reason}"
            ) from error

    def num_pieces(self, index: int) -> int:
        """Returns in how many parts a variable is stored."""
        return len(self._pieces[index]) if self.is_sharded else 1

    def array(self, index: int) -> "StoredArray":
        """Returns a variable's array, of which nothing has been read yet."""
        pieces = self._pieces[index]
        shape = self.manifest["variables"][index].get("shape")
        if not self.is_sharded:
            shape = self._main.placed(index).shape
            name = self.manifest["dtypes"][index]
            pieces = [Piece(0, index, [0] * len(shape), shape, name)]
        elif len(pieces) == 1:  # With an axis of replicas, perhaps.
            shape = pieces[0].shape
        return StoredArray(tuple(shape), pieces, self._placed, self._pool)

    def _placed(self, piece: Piece) -> file_format.Placed:
        """Returns where a piece is, in a file that is opened when needed."""
        if not self.is_sharded:
            return self._main.placed(piece.array)
        if piece.file not in self._readers:
            path = self.path / part_name(piece.file)
            self._readers[piece.file] = self._reader_of(path)
        return self._readers[piece.file].placed(piece.array)

    def _reader_of(self, path: Place) -> file_format.Reader:
        file = self._open.enter_context(self._opened(path))
        try:
            return file_format.Reader(file)
        except file_format.DamagedFileError:
            self._open.close()
            raise


class StoredArray:
    """A variable's array in files; slicing it reads what the slices need.

    Args:
        place: Function that returns the `Placed` of a piece.
        pool: `ThreadPoolExecutor` that reads.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        pieces: Sequence[Piece],
        place: Callable[[Piece], file_format.Placed],
        pool: concurrent.futures.ThreadPoolExecutor,
    ) -> None:
        self.shape = shape
        self.dtype = file_format.dtype(pieces[0].dtype)
        self._pieces = pieces
        self._place = place
        self._pool = pool

    def __getitem__(self, box: Any) -> np.ndarray:
        if box is Ellipsis:
            box = tuple(slice(0, size) for size in self.shape)
        size = [one.stop - one.start for one in box]
        target = np.empty(size, self.dtype)
        reads: list[Callable[[], None]] = []
        found = 0
        for piece in self._pieces:
            common = [
                (max(one.start, begin), min(one.stop, begin + length))
                for one, begin, length in zip(box, piece.start, piece.shape)
            ]
            if any(end <= begin for begin, end in common):
                continue
            source, into = (
                tuple(
                    slice(begin - origin, end - origin)
                    for (begin, end), origin in zip(common, origins)
                )
                for origins in (piece.start, [one.start for one in box])
            )
            part = target[into] if into else target
            found += part.size
            reads += self._place(piece).reads(source, part)
        if found != target.size:
            raise file_format.DamagedFileError(
                "a part of a variable is missing"
            )
        list(self._pool.map(lambda read: read(), reads))
        return target
