"""Streams Keras's files of weights from and to sharded variables.

Keras holds the whole HDF5 file of a `.keras` archive in memory when it saves or
loads a model, and each variable as an array and as a tensor. Here the archive's
file is read where it lies, a large variable is an array that is mapped from the
file, and each replica reads its own part of it. Checked on Keras 3.10 and 3.15.
"""

import io
import os
import struct
import threading
import zipfile
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common import KerasVariable
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.saving import saving_lib

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable

_LEAST_BYTES = 1 << 16
"""Variables of fewer bytes are read by HDF5, which takes less time."""

_thread = threading.local()


class _ReadInPlaceError(Exception):
    """Makes Keras read an archive's file of weights without extracting it."""


class _Member(io.RawIOBase):
    """A member of a zip archive that isn't compressed, as a file of its own.

    The file that `zipfile` returns reads all bytes in front of the position
    that it seeks (Python 3.10 to 3.12), and HDF5 seeks often.

    Args:
        path: String, path of the archive.
        first: Integer, number of the member's first byte in the archive.
        size: Integer, its bytes.
    """

    def __init__(self, path: str, first: int, size: int) -> None:
        super().__init__()
        self.path, self.first = path, first
        self._size, self._position = size, 0
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = (0, self._position, self._size)[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self.first + self._position)
        most = max(self._size - self._position, 0)
        number = self._file.readinto(memoryview(buffer)[:most])
        self._position += number
        return number

    def close(self) -> None:
        self._file.close()
        super().close()


def _member(archive: zipfile.ZipFile, name: str) -> _Member | None:
    """Returns an archive's member; `None` if it can't be read in place."""
    path, info = archive.filename, archive.getinfo(name)
    if (
        path is None
        or not os.path.isfile(path)
        or info.compress_type != zipfile.ZIP_STORED
        or info.flag_bits & 1  # It is encrypted.
    ):
        return None
    with open(path, "rb") as file:
        file.seek(info.header_offset + 26)  # PKWARE's APPNOTE.TXT, 4.3.7.
        name_size, extra_size = struct.unpack("<HH", file.read(4))
    first = info.header_offset + 30 + name_size + extra_size
    return _Member(path, first, info.file_size)


@seam(saving_lib, "_load_model_from_fileobj")
def _load_model(original: Original, *args: Any, **kwargs: Any) -> Any:
    _thread.loads = True
    try:
        return original(*args, **kwargs)
    finally:
        _thread.loads = False


@seam(saving_lib, "is_memory_sufficient")
def _is_memory_sufficient(original: Original, model: keras.Model) -> bool:
    """Whether Keras may hold the whole file of weights in memory.

    Otherwise it writes a temporary file beside the archive, and extracts one
    there to load it, on each worker; unless an exception is raised, after which
    it reads the archive.
    """
    strategy = model.distribute_strategy
    if not is_ours(strategy) or strategy.extended.axis_to_shard is None:
        return bool(original(model))
    if getattr(_thread, "loads", False):
        raise _ReadInPlaceError
    return False


@seam(saving_lib.H5IOStore, "_get_h5_file")
def _open(
    original: Original, self: Any, path: Any, *args: Any, **kwargs: Any
) -> h5py.File:
    member = None
    if ShardedVariable.exists and self.archive and self.mode == "r":
        member = _member(self.archive, str(path))
    if member is None:
        return original(self, path, *args, **kwargs)
    self.io_file = member
    return h5py.File(member, mode="r")


@seam(saving_lib.H5IOStore, "__getitem__")
def _read(original: Original, self: Any, key: str) -> Any:
    if ShardedVariable.exists and self.mode == "r":
        mapped = _mapped(self, key)
        if mapped is not None:
            return mapped
    return original(self, key)


def _mapped(store: Any, key: str) -> np.memmap | None:
    """Returns a stored array, mapped from its file; `None` if it can't be."""
    group = store._h5_entry_group
    link = group.get(key, None, getclass=True, getlink=True) if group else None
    dataset = group[key] if link is h5py.HardLink else None
    if (
        not isinstance(dataset, h5py.Dataset)
        or dataset.nbytes < _LEAST_BYTES
        or dataset.chunks is not None  # It may be compressed, too.
        or dataset.external
        or dataset.is_virtual
        or dataset.file.userblock_size
        or dataset.dtype.kind not in "fiu"
        or not dataset.dtype.isnative
        or "dtype" in dataset.attrs  # bfloat16, for which HDF5 has no type.
    ):
        return None
    first, path = dataset.id.get_offset(), store.h5_file.filename
    if isinstance(store.io_file, _Member):
        first, path = store.io_file.first + first, store.io_file.path
    elif store.h5_file.driver != "sec2":
        return None
    return np.memmap(path, dataset.dtype, "r", first, dataset.shape)


@seam(KerasVariable, "assign")
def _assign(original: Original, self: Any, value: Any) -> Any:
    """Assigns a mapped array to parts without reading all of it."""
    held = self._value
    if (
        isinstance(value, np.memmap)
        and isinstance(held, ShardedVariable)
        and held.shape == value.shape
        and held.dtype == value.dtype
        and not held.acts_whole
        and tf.executing_eagerly()
        and not in_stateless_scope()
    ):
        held.assign_from(value)
        return value
    return original(self, value)
