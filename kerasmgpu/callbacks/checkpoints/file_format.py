"""Writes and reads a checkpoint: a zip archive of NumPy arrays and a manifest.

    manifest.json   format, versions, position, variables, dtypes, SHA-256
    000000.npy …    the arrays, as `numpy.load` reads them

It contains no pickles, so reading runs no code. Types that NumPy lacks
(bfloat16, float8) are stored as unsigned integers of the same size and named
in the manifest.
"""

import contextlib
import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any

import ml_dtypes
import numpy as np

FORMAT = "kerasmgpu checkpoint"
VERSION = 1
MANIFEST = "manifest.json"


class DamagedFileError(Exception):
    """Raised for a file that is damaged or no checkpoint; says why."""


def write(
    file: IO[bytes], manifest: dict[str, Any], arrays: list[np.ndarray]
) -> None:
    """Writes a checkpoint.

    Args:
        file: Binary file, open for writing and seekable.
        manifest: Dictionary that `json` can write.
        arrays: List of NumPy arrays.

    Raises:
        OSError: If it can't be written, for example on a full disk.
    """
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        **manifest,
        "dtypes": [array.dtype.name for array in arrays],
    }
    arrays = [_storable(array) for array in arrays]
    manifest["sha256"] = _digest(manifest, arrays)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for index, array in enumerate(arrays):
            with archive.open(_name(index), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        archive.writestr(MANIFEST, json.dumps(manifest))


class Reader:
    """Reads the arrays of a checkpoint that `write` wrote, one by one.

    Args:
        file: Binary file, open for reading and seekable.

    Attributes:
        manifest: Dictionary, the argument of `write`, with the arrays'
            `"dtypes"`.

    Raises:
        DamagedFileError: In all methods, if the file is truncated, altered or
            not a checkpoint.
        OSError: In all methods, if it can't be read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        with _damage_named():
            self._archive = zipfile.ZipFile(file)
            self.manifest = json.loads(self._archive.read(MANIFEST))
            _require_known(self.manifest)
            self._sha256 = self.manifest.pop("sha256")
            self._num_arrays = len(self.manifest["dtypes"])

    def __len__(self) -> int:
        return self._num_arrays

    def array(self, index: int) -> np.ndarray:
        """Reads one array."""
        name = self.manifest["dtypes"][index]
        with _damage_named():
            return self._stored(index).view(dtype(name))

    def verify(self) -> None:
        """Reads everything once and verifies the checksum."""
        arrays = map(self._stored, range(len(self)))
        with _damage_named():
            found = _digest(self.manifest, arrays)
        if found != self._sha256:
            raise DamagedFileError("its content doesn't match its checksum")

    def _stored(self, index: int) -> np.ndarray:
        with self._archive.open(_name(index)) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            member.read()  # zipfile checks the CRC at the end of the member.
        return array


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


def _digest(manifest: dict[str, Any], arrays: Iterable[np.ndarray]) -> str:
    """Returns the SHA-256 of the manifest and of the bytes of all arrays."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode())
    for array in arrays:
        digest.update(str((array.dtype.str, array.shape)).encode())
        digest.update(array.reshape(-1).view(np.uint8))
        del array  # Before the next one is read.
    return digest.hexdigest()
