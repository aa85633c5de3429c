"""Makes TensorFlow's functions give float64 where a program asks for less.

A program casts by hand, `tf.cast(y, tf.float32)`, or makes numbers whose type is
float32 unless it says another one: in a float64 run these would round as float32
does, or not fit the others.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf

_cast = tf.cast
"""That outside of the scope."""

_LESS = (tf.float32, tf.float16, tf.bfloat16)

_LIBRARIES = ("keras.", "tensorflow.", "kerasmgpu.")
"""Packages that know themselves why they cast, as for a kernel of float32."""

_CONVERSIONS = ("tensorflow.python.autograph", "tensorflow.python.util")
"""Modules of TensorFlow that call a program's functions for it."""

_WITH_TYPES = (
    *(tf, tf.dtypes, tf.image, tf.linalg, tf.math, tf.random, tf.signal),
    *(keras.ops, keras.ops.numpy, keras.random, tf.keras.backend),
    *(keras.layers.Layer, keras.metrics.Metric),
)
"""Whose functions with an argument `dtype` give float64."""

_OF_OTHER_TYPES = ("__init__", "make_tensor_proto", "map_fn", "view")
"""Functions whose `dtype` is that of other numbers than they make."""

_OF_NUMBERS = (
    (tf, ("exp", "fill", "linspace", "pow", "sqrt", "stack", "where")),
    (tf.math, ("exp", "log", "pow", "sqrt")),
)
"""Functions that make float32 of Python's numbers, and have no `dtype`."""


@contextlib.contextmanager
def float64_of_less() -> Iterator[None]:
    """Scope in which TensorFlow's functions give float64 instead of less."""
    changes: list[tuple[Any, str, Callable[..., Any]]] = [
        (module, name, _wide(function))
        for module in _WITH_TYPES
        for name, function in tuple(vars(module).items())
        if name not in _OF_OTHER_TYPES and _has_a_type(function)
    ]
    changes += [
        (module, name, _with_wide_numbers(getattr(module, name)))
        for module, names in _OF_NUMBERS
        for name in names
    ]
    # These have no float64 kernel. Each treats a row by itself, so float32
    # rounds in it alike on all replicas.
    changes += [
        (tf.math, "in_top_k", _in_float32(tf.math.in_top_k, lambda *_: True)),
        (tf.nn, "max_pool", _in_float32(tf.nn.max_pool, _is_of_volumes)),
    ]
    with contextlib.ExitStack() as stack:
        for module, name, change in changes:
            stack.enter_context(mock.patch.object(module, name, change))
        yield


def batches_of_float64(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a data set with float64 in place of floats of less."""
    spec = dataset.element_spec
    if all(_type_of(leaf) not in _LESS for leaf in tf.nest.flatten(spec)):
        return dataset

    def converted(*parts: Any) -> Any:
        batch = parts if isinstance(spec, tuple) else parts[0]
        return tf.nest.map_structure(_to_float64, batch)

    return dataset.map(converted)


def _to_float64(value: Any) -> Any:
    is_less = isinstance(value, tf.Tensor) and value.dtype in _LESS
    return _cast(value, tf.float64) if is_less else value


def _to_float32(value: Any) -> Any:
    is_wide = isinstance(value, tf.Tensor) and value.dtype == tf.float64
    return _cast(value, tf.float32) if is_wide else value


def _has_a_type(function: Any) -> bool:
    return inspect.isfunction(function) and (
        "dtype" in inspect.signature(function).parameters
    )


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that gives programs float64 in place of less."""
    signature = inspect.signature(function)

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def wide(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        dtype = given.arguments["dtype"]
        if dtype is None:
            made = function(*args, **kwargs)
            value = next(iter(given.arguments.values()))
            if _type_of(made) not in _LESS or not _may_choose(value, made):
                return made
        elif _named(dtype) not in _LESS or _is_of_a_library():
            return function(*args, **kwargs)
        given.arguments["dtype"] = tf.float64
        return function(*given.args, **given.kwargs)

    return wide


def _with_wide_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that takes a program's numbers for float64."""

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def wide(*args: Any, **kwargs: Any) -> Any:
        leaves = tf.nest.flatten((args, kwargs))
        fixed = (_type_of(leaf) for leaf in leaves if not _is_number(leaf))
        if any(dtype in _LESS for dtype in fixed) or _is_of_a_library():
            return function(*args, **kwargs)
        given = tf.nest.map_structure(_number_to_float64, (args, kwargs))
        return function(*given[0], **given[1])

    return wide


def _number_to_float64(value: Any) -> Any:
    is_less = isinstance(value, float) or _type_of(value) in _LESS
    if _is_number(value) and is_less:
        return tf.constant(value, tf.float64)
    return value


def _is_number(value: Any) -> bool:
    """Whether a value is one of Python or NumPy, whose type nobody chose."""
    return isinstance(value, float | np.ndarray | np.generic)


def _may_choose(value: Any, made: Any) -> bool:
    """Whether the type of what was made of a value is nobody's choice."""
    leaves = tf.nest.flatten(value)
    if any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves):
        return not _is_of_a_library()
    return all(_type_of(leaf) != made.dtype for leaf in leaves)


def _is_of_a_library() -> bool:
    """Whether Keras or TensorFlow, and no program, made the call."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != __name__ and not name.startswith(_CONVERSIONS):
            return name.startswith(_LIBRARIES)
        frame = frame.f_back
    return False


def _in_float32(
    function: Callable[..., Any], where: Callable[..., bool]
) -> Callable[..., Any]:
    """Returns a function that takes float64 where a condition is met."""

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def converting(*args: Any, **kwargs: Any) -> Any:
        if not where(*args, *kwargs.values()):
            return function(*args, **kwargs)
        given = tf.nest.map_structure(_to_float32, (args, kwargs))
        return _to_float64(function(*given[0], **given[1]))

    return converting


def _is_of_volumes(*arguments: Any) -> bool:
    shapes = [a.shape for a in arguments if isinstance(a, tf.Tensor)]
    return len(shapes[0]) == 5


def _type_of(value: Any) -> tf.DType | None:
    return _named(getattr(value, "dtype", None))


def _named(dtype: Any) -> tf.DType | None:
    try:
        return None if dtype is None else tf.as_dtype(dtype)
    except TypeError:  # A type of another library.
        return None
