"""Writes and reads a checkpoint: a zip archive of NumPy arrays and a manifest.

    manifest.json   format, versions, position, variables, dtypes, SHA-256
    000000.npy …    the arrays, as `numpy.load` reads them

It contains no pickles, so reading runs no code. Types that NumPy lacks
(bfloat16, float8) are stored as unsigned integers of the same size and named
in the manifest.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import ml_dtypes
import numpy as np

FORMAT = "kerasmgpu checkpoint"
VERSION = 1
MANIFEST = "manifest.json"

_BLOCK = 8 << 20
"""Bytes that a thread reads at once, if a row has no more."""


class DamagedFileError(Exception):
    """Raised for a file that is damaged or no checkpoint; says why."""


def write(
    file: IO[bytes],
    manifest: dict[str, Any],
    arrays: Iterable[np.ndarray],
    dtypes: Sequence[str] | None = None,
) -> None:
    """Writes a checkpoint, one array after the other.

    Args:
        file: Binary file, open for writing and seekable.
        manifest: Dictionary that `json` can write.
        arrays: NumPy arrays; with `dtypes`, each may be made when it is asked
            for, and is released once it is written.
        dtypes: Names of the arrays' types. Default: `arrays` is a list.

    Raises:
        OSError: If it can't be written, for example on a full disk.
    """
    if dtypes is None:
        arrays = list(arrays)
        dtypes = [array.dtype.name for array in arrays]
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **manifest,
        "dtypes": list(dtypes),
    }
    digest = _digest(manifest)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for index, array in enumerate(map(_storable, arrays)):
            with archive.open(_name(index), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
            _add(digest, array)
            del array  # Before the next one is made.
        manifest["sha256"] = digest.hexdigest()
        archive.writestr(MANIFEST, json.dumps(manifest))


class Reader:
    """Reads the arrays of a checkpoint that `write` wrote, one by one.

    Args:
        file: Binary file, open for reading and seekable.

    Attributes:
        manifest: Dictionary, the argument of `write`, with the arrays'
            `"dtypes"`.
        sha256: String, the checksum of the whole content.

    Raises:
        DamagedFileError: In all methods, if the file is truncated, altered or
            not a checkpoint.
        OSError: In all methods, if it can't be read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        with _damage_named():
            self._archive = zipfile.ZipFile(file)
            self.manifest = json.loads(self._archive.read(MANIFEST))
            _require_known(self.manifest)
            self.sha256 = self.manifest.pop("sha256")
            self._num_arrays = len(self.manifest["dtypes"])

    def __len__(self) -> int:
        return self._num_arrays

    def array(self, index: int) -> np.ndarray:
        """Reads one array."""
        name = self.manifest["dtypes"][index]
        with _damage_named():
            return self._stored(index).view(dtype(name))

    def placed(self, index: int) -> "Placed":
        """Returns where an array is in the file."""
        info = self._archive.getinfo(_name(index))
        with _damage_named(), self._archive.open(info) as member:
            np.lib.format.read_magic(member)
            header = np.lib.format.read_array_header_1_0(member)
            shape, is_fortran, _ = header
            if is_fortran or info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{info.filename} is not as it was written")
            size = member.tell()
        fileno = self._file.fileno()
        # The lengths of a name and an extra field, behind which the array is.
        lengths = struct.unpack(
            "<HH", os.pread(fileno, 4, info.header_offset + 26)
        )
        start = info.header_offset + 30 + sum(lengths) + size
        name = self.manifest["dtypes"][index]
        return Placed(fileno, start, shape, dtype(name))

    def verify(self) -> None:
        """Reads everything once and verifies the checksum."""
        digest = _digest(self.manifest)
        with _damage_named():
            for array in map(self._stored, range(len(self))):
                _add(digest, array)
                del array  # Before the next one is read.
        if digest.hexdigest() != self.sha256:
            raise DamagedFileError("its content doesn't match its checksum")

    def _stored(self, index: int) -> np.ndarray:
        with self._archive.open(_name(index)) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            member.read()  # zipfile checks the CRC at the end of the member.
        return array


@dataclasses.dataclass(frozen=True)
class Placed:
    """An array in a file, of which parts can be read by several threads.

    Attributes:
        fileno: Integer, the file's descriptor.
        start: Integer, the array's first byte.
        shape: Tuple of integers.
        dtype: NumPy type of the array.
    """

    fileno: int
    start: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def reads(
        self, box: tuple[slice, ...], target: np.ndarray
    ) -> Iterator[Callable[[], None]]:
        """Yields functions that read a part of the array, some MiB each.

        Args:
            box: Slices with a start and a stop, one per axis.
            target: Array of the part's size and type, to which they write.
        """
        return self._reads(self.start, self.shape, box, target)

    def _reads(
        self,
        start: int,
        shape: tuple[int, ...],
        box: tuple[slice, ...],
        target: np.ndarray,
    ) -> Iterator[Callable[[], None]]:
        if not shape:  # One element.
            yield functools.partial(self._read, start, (), (), target)
            return
        rest = shape[1:]
        row = math.prod(rest) * self.dtype.itemsize
        rows, first = len(target), box[0].start
        if row > _BLOCK and len(shape) > 1:
            for number in range(rows):
                begin = start + (first + number) * row
                yield from self._reads(begin, rest, box[1:], target[number])
            return
        step = max(1, _BLOCK // max(1, row))
        for number in range(0, rows, step):
            own = target[number : number + step]
            yield functools.partial(
                self._read,
                start + (first + number) * row,
                (len(own), *rest),
                (slice(None), *box[1:]),
                own,
            )

    def _read(
        self,
        start: int,
        shape: tuple[int, ...],
        box: tuple[slice, ...],
        target: np.ndarray,
    ) -> None:
        """Reads whole rows, and copies a part of each."""
        size = math.prod(shape) * self.dtype.itemsize
        data = os.pread(self.fileno, size, start)
        if len(data) < size:
            raise DamagedFileError("it is truncated")
        target[...] = np.frombuffer(data, self.dtype).reshape(shape)[box]


def read(file: IO[bytes]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Returns the verified manifest and all arrays; raises as `Reader` does."""
    reader = Reader(file)
    reader.verify()
    return reader.manifest, [reader.array(i) for i in range(len(reader))]


@contextlib.contextmanager
def _damage_named() -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        NotImplementedError,  # A compression method that `write` never uses.
        RuntimeError,  # An encrypted archive.
        TypeError,
        ValueError,
    ) as error:
        raise DamagedFileError(str(error) or type(error).__name__) from error


def _name(index: int) -> str:
    return f"{index:06d}.npy"


def _require_known(manifest: dict[str, Any]) -> None:
    if manifest.get("format") != FORMAT:
        raise DamagedFileError("it is not a checkpoint of kerasmgpu")
    if manifest.get("version") != VERSION:
        raise DamagedFileError(
            f"it has format version {manifest.get('version')}, and this "
            f"kerasmgpu reads version {VERSION}"
        )


def _storable(array: np.ndarray) -> np.ndarray:
    """Returns the array in a type that the `.npy` format can store."""
    # Not ascontiguousarray, which adds an axis to scalars.
    array = np.asarray(array, order="C")
    if array.dtype.isbuiltin != 1:
        return array.view(f"u{array.dtype.itemsize}")
    return array


def dtype(name: str) -> np.dtype:
    """Returns the NumPy type for a name in a manifest's `"dtypes"`."""
    return np.dtype(getattr(ml_dtypes, name, name))


def _digest(manifest: dict[str, Any]) -> "hashlib._Hash":
    """Returns a SHA-256 of a manifest, to which arrays are added."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode())


def _add(digest: "hashlib._Hash", array: np.ndarray) -> None:
    """Adds an array's type, shape and bytes to a digest."""
    digest.update(str((array.dtype.str, array.shape)).encode())
    digest.update(array.reshape(-1).view(np.uint8))
