"""Converts checkpoints: to one file or a folder, to Keras's files, and back.

One variable after the other is read and written; no model is built, and
TensorFlow isn't imported. Of a Keras file the weights are written; the rest of
a `.keras` file (its configuration) is that of another one of the same model.
"""

import contextlib
import itertools
import pathlib
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kerasmgpu.atomic_files import atomic_write
from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.callbacks.checkpoints.store_folder import folder_at
from kerasmgpu.callbacks.checkpoints.stored import Stored
from kerasmgpu.errors import InputError
from kerasmgpu.stores.places import Place, opened
from kerasmgpu.stores.store_path import StorePath

_WEIGHTS = "model.weights.h5"
"""The weights in a `.keras` file, which is a zip archive."""

_SUFFIXES = (".npz", ".weights.h5", ".keras")

_OF_FILES = ("format", "version", "dtypes", "pieces", "sha256s")
"""Entries of a manifest that each file has anew."""


def convert(source: Place, target: Place, like: Place | None) -> None:
    """Converts a checkpoint, or a Keras file, by the endings of the names.

    Args:
        source: Path of a checkpoint, or of a `.keras` or `.weights.h5` file.
        target: Path of the new file or folder: `.npz`, `.weights.h5`, `.keras`,
            or, without a suffix, a folder of a sharded checkpoint.
        like: Path of what has the rest: for a `.keras` file another one of the
            same model, and for the weights of a Keras file a checkpoint.

    Raises:
        InputError: If the files are of different models, `like` is missing, or
            `target` is there, has another suffix or no parent folder.
        DamagedFileError: If the checkpoint is damaged.
        OSError: If a file can't be read or written.
    """
    if target.exists():
        raise InputError(
            f"the target must be new. Received: {target}, which exists"
        )
    if not target.name.endswith(_SUFFIXES) and target.suffix:
        raise InputError(
            f"the target's name must end in {', '.join(_SUFFIXES)}, or have no "
            f"suffix, for a folder. Received: {target}"
        )
    parent = target.absolute().parent
    if not isinstance(parent, StorePath) and not parent.is_dir():
        raise InputError(
            f"the target must be in a folder that exists. Received: {target}"
        )
    if _is_of_keras(source):
        if _is_of_keras(target) or like is None or _is_of_keras(like):
            raise InputError(
                f"{source} has weights only: the target must be a checkpoint, "
                "and --like the one that has the rest. Received: target "
                f"{target}, --like={like}"
            )
        with Stored(like) as stored, _weights_of(source) as weights:
            _require_same(stored, weights, source)
            _write(target, stored, _values(stored, weights))
        return
    with Stored(source) as stored:
        if not _is_of_keras(target):
            _write(target, stored, lambda index: stored.array(index)[...])
        elif target.suffix == ".h5":
            with atomic_write(target) as temporary:
                _write_weights(temporary, stored)
        elif like is None or like.suffix != ".keras":
            raise InputError(
                "a checkpoint has no configuration of the model: name a file "
                "of the same model that has it, --like=MODEL.keras. Received: "
                f"--like={like}"
            )
        else:
            with _weights_of(like) as weights:
                _require_same(stored, weights, like)
            with atomic_write(target) as temporary:
                _write_model(temporary, stored, like)


def _is_of_keras(path: Place) -> bool:
    return path.name.endswith((".keras", ".weights.h5"))


def _write(
    target: Place, stored: Stored, array: Callable[[int], np.ndarray]
) -> None:
    """Writes a checkpoint whose variables `array` returns by index."""
    rest = {k: v for k, v in stored.manifest.items() if k not in _OF_FILES}
    indices = range(len(rest["variables"]))
    found = [stored.array(index) for index in indices]
    dtypes = [one.dtype.name for one in found]
    folder = folder_at(target.parent, keep=sys.maxsize)
    arrays: Iterator[np.ndarray] = map(array, indices)
    if target.suffix == ".npz":
        dtypes += [one.dtype.name for one in stored.extra]
        arrays = itertools.chain(arrays, stored.extra)
        folder.write(target.name, rest, arrays, dtypes)
        return
    pieces = [
        (index, [0] * len(one.shape), one.shape)
        for index, one in enumerate(found)
    ]
    folder.write_part(target.name, 0, pieces, arrays, dtypes)
    folder.commit(target.name, 1, rest, stored.extra)


def _groups(stored: Stored) -> dict[str, dict[str, Any]]:
    """Returns the groups of a file of weights; see `weight_keys.read`."""
    groups: dict[str, Any] = stored.manifest.get(
        "weights", {"reason": "a former version wrote it, without their names"}
    )
    if "reason" in groups:
        raise InputError(
            f"{stored.path} can't be converted to Keras's files, or from them: "
            f"{groups['reason']}. Resume from it, and call model.save"
        )
    return groups


def _write_weights(path: pathlib.Path, stored: Stored) -> None:
    """Writes a `.weights.h5` file as Keras does."""
    import h5py

    with h5py.File(path, "w") as weights:
        for name, group in _groups(stored).items():
            made = weights.create_group(_path(name))
            if "name" in group:
                made.attrs["name"] = group["name"]
            for key, index in group["variables"].items():
                array = stored.array(index)[...]
                parts = stored.manifest["variables"][index]["parts"]
                if parts is not None:  # One value per replica.
                    array = array.sum(0) if parts == "sum" else array[0]
                dataset = made.create_dataset(key, data=array)
                if array.dtype.name == "bfloat16":  # HDF5 has no such type.
                    dataset.attrs["dtype"] = "bfloat16"


def _path(group: str) -> str:
    return f"{group}/vars" if group else "vars"


def _write_model(path: pathlib.Path, stored: Stored, like: Place) -> None:
    """Writes a `.keras` file, with all but the weights of another one."""
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as folder,
        opened(like) as file,
        zipfile.ZipFile(file) as model,
        zipfile.ZipFile(path, "w") as new,
    ):
        for info in model.infolist():
            if info.filename != _WEIGHTS:
                new.writestr(info, model.read(info))
        weights = pathlib.Path(folder, _WEIGHTS)
        _write_weights(weights, stored)
        new.write(weights, _WEIGHTS)


@contextlib.contextmanager
def _weights_of(path: Place) -> Iterator[Any]:
    """Context with the `h5py.File` of a `.keras` or `.weights.h5` file."""
    import h5py

    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(opened(path))
            if path.suffix == ".keras":
                model = stack.enter_context(zipfile.ZipFile(file))
                file = stack.enter_context(model.open(_WEIGHTS))
            weights = stack.enter_context(h5py.File(file, "r"))
        except FileNotFoundError:
            raise
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(
                f"a file that Keras saved is expected. Received: {path} ({error})"
            ) from error
        yield weights


def _require_same(stored: Stored, weights: Any, path: Place) -> None:
    """Raises `InputError` if a file of weights is another model's.

    It may lack the optimizer, as that of a model that isn't compiled.
    """
    for group, content in _groups(stored).items():
        for key, index in content["variables"].items():
            shape = stored.manifest["variables"][index]["shape"]
            name = f"{_path(group)}/{key}"
            found = list(weights[name].shape) if name in weights else None
            if found != shape and (found or not group.startswith("optimizer")):
                raise InputError(
                    f"{path} is of another model than {stored.path}: its {name} "
                    f"should have the shape {shape}. Received: {found}"
                )


def _values(stored: Stored, weights: Any) -> Callable[[int], np.ndarray]:
    """Returns a function that reads the value of a variable, by its index."""
    datasets = {
        index: f"{_path(group)}/{key}"
        for group, content in _groups(stored).items()
        for key, index in content["variables"].items()
    }

    def value(index: int) -> np.ndarray:
        own, name = stored.array(index), datasets.get(index)
        if name is None or name not in weights:
            return own[...]
        array = np.asarray(weights[name])
        if weights[name].attrs.get("dtype") == "bfloat16":
            array = array.view(file_format.dtype("bfloat16"))
        array = array.astype(own.dtype).reshape(array.shape)
        if own.shape == array.shape:
            return array
        # A value per replica: the first one's is the sum, or all are the same.
        is_sum = stored.manifest["variables"][index]["parts"] == "sum"
        values = np.zeros(own.shape, own.dtype)
        values[0 if is_sum else slice(None)] = array
        return values

    return value
