"""The float types in which a model computes."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import keras

FLOATS = ("bfloat16", "float16", "float32", "float64")
"""Float types, from the least precise to the most precise one."""


def dtype_of(model: keras.Model) -> str:
    """Returns the least precise float type that a layer computes in."""
    used = {layer.compute_dtype for layer in model.layers}
    return next((name for name in FLOATS if name in used), "float32")


@contextlib.contextmanager
def float64_in_place_of_less() -> Iterator[None]:
    """Scope in which Keras's float type, and a policy that is set, is float64.

    Without it, a program that sets mixed precision would train in that.
    """
    set_floatx, set_policy = (
        keras.config.set_floatx,
        keras.config.set_dtype_policy,
    )

    def instead_of_a_type(_: str) -> None:
        set_floatx("float64")

    def instead_of_a_policy(policy: Any) -> None:
        name = getattr(policy, "name", policy)
        is_float = str(name).removeprefix("mixed_") in FLOATS
        set_policy("float64" if is_float else policy)

    before = keras.config.floatx(), keras.config.dtype_policy()
    set_floatx("float64")
    set_policy("float64")
    try:
        with contextlib.ExitStack() as stack:
            for module, name, function in (
                (keras.config, "set_floatx", instead_of_a_type),
                (keras.backend, "set_floatx", instead_of_a_type),
                (keras.config, "set_dtype_policy", instead_of_a_policy),
                (
                    keras.mixed_precision,
                    "set_dtype_policy",
                    instead_of_a_policy,
                ),
                (
                    keras.mixed_precision,
                    "set_global_policy",
                    instead_of_a_policy,
                ),
            ):
                stack.enter_context(mock.patch.object(module, name, function))
            yield
    finally:
        set_floatx(before[0])
        set_policy(before[1])
