"""Has a program compute in float64."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import keras

from kerasmgpu.distances import FLOATS
from kerasmgpu.verify.float64_functions import float64_of_less


@contextlib.contextmanager
def float64_in_place_of_less() -> Iterator[None]:
    """Scope in which a program computes in float64.

    Keras's float type, and each policy that is made, is float64: that of mixed
    precision, and of a layer whose `dtype` is `"float32"`, too. So are casts
    and numbers that are made by hand.
    """
    set_floatx, make = keras.config.set_floatx, keras.DTypePolicy.__init__
    before = keras.config.floatx(), keras.config.dtype_policy()

    def instead_of_a_type(_: str) -> None:
        set_floatx("float64")

    def instead_of_a_policy(
        policy: keras.DTypePolicy, name: str | None = None
    ) -> None:
        is_float = str(name).removeprefix("mixed_") in FLOATS
        make(policy, "float64" if is_float else name)

    set_floatx("float64")
    try:
        with (
            float64_of_less(),
            mock.patch.object(keras.config, "set_floatx", instead_of_a_type),
            mock.patch.object(keras.backend, "set_floatx", instead_of_a_type),
            mock.patch.object(
                keras.DTypePolicy, "__init__", instead_of_a_policy
            ),
        ):
            keras.config.set_dtype_policy("float64")
            yield
    finally:
        set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
