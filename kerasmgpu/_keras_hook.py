"""Completes `keras.distribution` on TensorFlow as soon as Keras is imported.

Programs import Keras and kerasmgpu in any order, and kerasmgpu imports neither
Keras nor TensorFlow by itself. So an import hook (`import_hooks.py`) waits for the
one module of Keras that knows all others concerned, and completes it right after
it has run: with the functions that Keras asks its backend for, with checks of
layouts, with what `Distribution` has in another version of Keras only, and with
calls of `strategies.distributions.follow` when the distribution of a thread
changes. What is called imports its module then.

With another backend of Keras nothing is changed. Checked on Keras 3.10 and 3.15;
`tests/_keras/test_distribution_hook.py` fails if one of the names is gone.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from kerasmgpu.import_hooks import after_import

_AWAITED = "keras.src.distribution.distribution_lib"
_TENSORFLOW = "keras.src.backend.tensorflow.distribution_lib"
_OURS = "kerasmgpu._keras.distribution_backend"
_FOLLOWER = "kerasmgpu.strategies.distributions"
_ATTRIBUTE = "distribution"  # Keras's GLOBAL_ATTRIBUTE_NAME.

BACKEND_FUNCTIONS = (
    "list_devices",
    "get_device_count",
    "distribute_tensor",
    "initialize",
    "num_processes",
    "process_id",
    "_to_backend_mesh",
    "_to_backend_layout",
)
"""What Keras looks up in the module of its backend, each time it is called."""


def install() -> None:
    """Completes Keras's module now, or when it is imported."""
    after_import(_AWAITED, complete)


def complete(module: Any) -> None:
    """Completes Keras's module `distribution_lib`, if TensorFlow's backend runs.

    Args:
        module: The module. It imports what it uses of Keras, so all private
            names are found in it.
    """
    backend = module.distribution_lib
    if getattr(backend, "__name__", None) != _TENSORFLOW:
        return
    for name in BACKEND_FUNCTIONS:
        setattr(backend, name, _forward(name))
    for owner, name, ours in (
        (module.TensorLayout, "_validate_axes", "validate_axes"),
        (module.LayoutMap, "__setitem__", "set_layout"),
        (module.DeviceMesh, "__init__", "make_mesh"),
    ):
        setattr(owner, name, _forward(ours, getattr(owner, name)))
    complete_class(module.Distribution)
    _wrap(module.global_state.set_global_attribute, _set_global_attribute)
    _wrap(module.global_state.clear_session, _clear_session)


def complete_class(distribution: Any) -> None:
    """Gives `Distribution` what programs for any version of Keras shard data by.

    A job is one process for Keras, so there is one shard, and data sets stay
    what they are. Keras 3.16 has no `distribute_dataset`, 3.15 no
    `num_data_shards`, and 3.10 to 3.14 neither `num_processes` nor
    `data_shard_id`; their `distribute_dataset` raises `NotImplementedError`
    unless a subclass has its own. A distribution of the user's own needs no
    `num_model_replicas` for them.
    """
    is_before_315 = not hasattr(distribution, "num_processes")
    if is_before_315:
        distribution.num_processes = 1
    if is_before_315 or not hasattr(distribution, "distribute_dataset"):
        distribution.distribute_dataset = lambda self, dataset: dataset
    for name, number in (("num_data_shards", 1), ("data_shard_id", 0)):
        keras_own = getattr(distribution, name, None)
        setattr(distribution, name, _in_one_process(number, keras_own))


def _in_one_process(number: int, keras_own: property | None) -> property:
    """Returns a property: a number in one process, Keras's in several.

    There are several only where Keras's own tests pretend so.
    """

    def get(self: Any) -> Any:
        if keras_own is None or self.num_processes == 1:
            return number
        return keras_own.__get__(self)

    return property(get)


def _forward(name: str, *first: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that imports and calls one of ours.

    Args:
        name: Its name in `distribution_backend`.
        *first: Arguments before those of the caller: the original that it
            wraps.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        ours = getattr(importlib.import_module(_OURS), name)
        return ours(*first, *args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return functools.wraps(first[0])(call) if first else call


def _wrap(function: FunctionType, ours: Callable[..., None]) -> None:
    """Replaces a function's code, so that it calls ours under each of its names.

    `keras.utils.clear_session` and imports by `from` are names that were bound
    before; those would keep a function that is replaced in Keras's module.
    """
    original = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
    )
    function.__defaults__ = None
    function.__kwdefaults__ = {"_call": functools.partial(ours, original)}
    function.__code__ = _code_of_wrapped.__code__


def _code_of_wrapped(
    *args: Any, _call: Callable[..., None], **kwargs: Any
) -> None:
    _call(*args, **kwargs)


def _set_global_attribute(
    original: Callable[..., None], name: str, value: Any
) -> None:
    # The distribution before stays if the new one can't be followed.
    if name == _ATTRIBUTE:
        _follow(value)
    original(name, value)


def _clear_session(
    original: Callable[..., None], free_memory: bool = True
) -> None:
    _follow(None)  # The session has the distribution of each thread.
    original(free_memory)


def _follow(distribution: Any) -> None:
    # No distribution before: nothing to undo, and nothing to import.
    if distribution is not None or _FOLLOWER in sys.modules:
        importlib.import_module(_FOLLOWER).follow(distribution)
