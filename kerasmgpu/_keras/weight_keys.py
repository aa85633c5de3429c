"""Records where Keras puts each variable in a `.weights.h5` file.

A checkpoint that holds these keys is converted to Keras's files, and back,
without the model; `callbacks/checkpoints/converting.py` does so. Keras's
`saving_lib._save_state` walks a model and hands each layer's variables to a
store; ours keeps the names, reads no value and writes no file. Checked on
Keras 3.10 to 3.15.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.saving import saving_lib

from kerasmgpu._keras import training_state


class _Names(saving_lib.H5IOStore):
    """A store that records what it is given under which key."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}

    def __bool__(self) -> bool:
        return True

    def make(self, path: str, metadata: dict[str, Any] | None = None) -> Any:
        self._path = path
        if metadata:
            self._group().update(metadata)
        return self

    def _group(self) -> dict[str, Any]:
        return self.groups.setdefault(self._path, {"variables": {}})

    def __setitem__(self, key: str, value: Any) -> None:
        self._group()["variables"][key] = value


@contextlib.contextmanager
def _optimizers_unread() -> Iterator[None]:
    """Context in which optimizers hand over variables, not their values.

    Reading a value may be a collective, and takes memory.
    """

    def save_own_variables(self: Any, store: Any) -> None:
        for index, variable in enumerate(self.variables):
            store[str(index)] = variable

    owner = keras.optimizers.Optimizer
    own = vars(owner).get("save_own_variables")
    owner.save_own_variables = save_own_variables
    try:
        yield
    finally:
        if own is None:
            del owner.save_own_variables
        else:
            owner.save_own_variables = own


def read(model: keras.Model) -> dict[str, Any]:
    """Returns the groups of a model's `.weights.h5` file.

    Args:
        model: `keras.Model`, built.

    Returns:
        Dictionary from a group's path, such as `"layers/dense"`, to a
        dictionary: `"name"`, the layer's name, and `"variables"`, which maps
        keys to indices in `training_state.variables`. Or only `"reason"`: why
        the file has something else than variables.
    """
    names = _Names()
    with _optimizers_unread():
        try:
            saving_lib._save_state(model, names, None, "", set())
        except Exception as error:  # A layer that can't be saved: not our step.
            return {"reason": f"Keras can't save the model: {error}"}
    listed, _ = training_state.variables(model)
    indices = {
        id(variable): index for index, (_, variable) in enumerate(listed)
    }
    for path, group in names.groups.items():
        keys = group["variables"]
        for key, value in keys.items():
            if id(value) not in indices:
                return {"reason": f"{path}/{key} is computed when it is saved"}
            keys[key] = indices[id(value)]
    return names.groups
