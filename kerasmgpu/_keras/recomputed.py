"""`keras.remat` and `keras.RematScope` in steps of our strategies.

Keras's own (3.10 and 3.15, TensorFlow) draws new random numbers and assigns
variables once more where it computes a layer again: gradients of a dropout are
those of another mask, and moving averages move twice. It refuses layers that are
called with keywords, `training=True` among them, in every compiled step, and
loses masks. Layers inside of others compute for inference the second time. Here
the second computation sees variables and arguments as the first one saw them, and
changes none. `tf.recompute_grad` still says when it runs.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.common.stateless_scope import (
    get_stateless_scope,
    in_stateless_scope,
)

from kerasmgpu._keras import made_variables
from kerasmgpu._keras.versions import tensorflow_core
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime import compiled_reads

_CONTEXT = "current_call_ctx"
"""Name of the call context among Keras's global attributes (`Layer.__call__`)."""


class _Scope(keras.StatelessScope):
    """Keeps assignments, and reads what the scope around it has assigned.

    Args:
        values: Values by id of variables, which it reads instead of theirs.

    Attributes:
        changed: The variables that were assigned, by their ids.
    """

    def __init__(self, values: dict[int, tf.Tensor]) -> None:
        super().__init__()
        self.state_mapping.update(values)
        self.changed: dict[int, Any] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        variable, _ = update
        self.changed[id(variable)] = variable
        super().add_update(update)


@seam(tensorflow_core, "remat")
def _remat(original: Original, f: Callable[..., Any]) -> Callable[..., Any]:
    kerass = original(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_ours(tf.distribute.get_strategy()):
            return kerass(*args, **kwargs)
        # TensorFlow has no gradient of `tf.recompute_grad` in a loop: layers
        # in there, such as an RNN's cell, are computed again with the loop.
        if made_variables.infers_shapes() or compiled_reads.is_in_body():
            return f(*args, **kwargs)
        return _recomputed(f, args, kwargs)

    return call


@seam(keras.Layer, "rematerialized_call")
def _rematerialized_call(
    original: Original, self: Any, call: Any, *args: Any, **kwargs: Any
) -> Any:
    """Lets `"larger_than"` ask layers for the sizes of their outputs.

    Keras passes them tensors, and layers expect symbolic ones.
    """
    if is_ours(tf.distribute.get_strategy()):
        args, kwargs = keras.tree.map_structure(_symbolic, (args, kwargs))
    return original(self, call, *args, **kwargs)


def _symbolic(leaf: Any) -> Any:
    if not isinstance(leaf, tf.Tensor):
        return leaf
    dtype = keras.backend.standardize_dtype(leaf.dtype)
    return keras.KerasTensor(leaf.shape, dtype)


def _recomputed(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Calls a function whose intermediate values aren't kept for gradients."""
    arguments = (args, kwargs)
    leaves = keras.tree.flatten(arguments)
    numbers = [
        n
        for n, leaf in enumerate(leaves)
        # TensorFlow adds zeros to arguments (2.18 to 2.21).
        if tf.is_tensor(leaf) and leaf.dtype != tf.bool
    ]
    values = dict(_assigned_around())
    scope: Any = None
    result: Any = None
    masks: list[Any] = []
    context = global_state.get_global_attribute(_CONTEXT)

    def first_or_again(*tensors: tf.Tensor) -> tuple[tf.Tensor, ...]:
        nonlocal scope, result, masks
        given = list(leaves)
        for number, tensor in zip(numbers, tensors):
            given[number] = _with_mask(tensor, get_keras_mask(leaves[number]))
        own_args, own_kwargs = keras.tree.pack_sequence_as(arguments, given)
        with _Scope(values) as own, _called_in(context):
            made = f(*own_args, **own_kwargs)
        flat = keras.tree.flatten(made)
        if scope is None:
            scope, result = own, made
            masks = [get_keras_mask(one) for one in flat]
            for key, variable in own.changed.items():
                values.setdefault(key, tf.identity(variable._value))
        return tuple(one for one in flat if tf.is_tensor(one))

    computed = tf.recompute_grad(first_or_again)(*(leaves[n] for n in numbers))
    for key, variable in scope.changed.items():
        variable.assign(scope.state_mapping[key])
    tensors = iter(computed)
    outputs = [
        _with_mask(next(tensors), mask) if tf.is_tensor(one) else one
        for one, mask in zip(keras.tree.flatten(result), masks)
    ]
    return keras.tree.pack_sequence_as(result, outputs)


@contextlib.contextmanager
def _called_in(context: Any) -> Iterator[None]:
    """Sets Keras's call context, from which layers know if they train."""
    before = global_state.get_global_attribute(_CONTEXT)
    global_state.set_global_attribute(_CONTEXT, context)
    try:
        yield
    finally:
        global_state.set_global_attribute(_CONTEXT, before)


def _assigned_around() -> dict[int, tf.Tensor]:
    """Returns what a recomputed layer around this one has assigned so far."""
    return get_stateless_scope().state_mapping if in_stateless_scope() else {}


def _with_mask(tensor: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    if mask is not None:
        set_keras_mask(tensor, mask)
    return tensor
