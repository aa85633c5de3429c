import io
import zipfile

import ml_dtypes
import numpy as np
import pytest

from kerasmgpu.callbacks.checkpoints import file_format

ARRAYS = [
    np.arange(6, dtype="float32").reshape(2, 3),
    np.array(3, "int64"),
    np.zeros((0, 2)),
    np.array([1.5, np.nan], ml_dtypes.bfloat16),
    np.arange(6).reshape(2, 3).T,
]


def written():
    file = io.BytesIO()
    file_format.write(file, {"progress": {"epoch": 3}}, ARRAYS)
    return file.getvalue()


def test_everything_comes_back_as_it_was():
    manifest, arrays = file_format.read(io.BytesIO(written()))
    assert manifest["progress"] == {"epoch": 3}
    for array, expected in zip(arrays, ARRAYS, strict=True):
        assert array.dtype == expected.dtype
        assert array.shape == expected.shape
        assert array.tobytes() == expected.tobytes()


def test_numpy_reads_the_arrays_without_pickle():
    with np.load(io.BytesIO(written()), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["000000"], ARRAYS[0])


def test_every_truncated_file_is_refused():
    content = written()
    for length in range(0, len(content) - 1, 7):
        with pytest.raises(file_format.DamagedFileError):
            file_format.read(io.BytesIO(content[:length]))


def test_a_flipped_bit_is_refused():
    content = bytearray(written())
    place = content.index(ARRAYS[0].tobytes()) + 5
    content[place] ^= 1
    with pytest.raises(file_format.DamagedFileError):
        file_format.read(io.BytesIO(content))


def test_content_that_was_exchanged_is_refused():
    source, target = io.BytesIO(written()), io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            other = {"000000.npy": "000001.npy"}.get(name, name)
            new.writestr(name, old.read(other))
    with pytest.raises(file_format.DamagedFileError, match="checksum"):
        file_format.read(target)


def test_foreign_archives_are_refused():
    file = io.BytesIO()
    np.savez(file, x=np.ones(3))
    with pytest.raises(file_format.DamagedFileError):
        file_format.read(file)


def test_a_newer_format_is_named(monkeypatch):
    monkeypatch.setattr(file_format, "VERSION", 2)
    content = written()
    monkeypatch.undo()
    with pytest.raises(file_format.DamagedFileError, match="version 2"):
        file_format.read(io.BytesIO(content))
