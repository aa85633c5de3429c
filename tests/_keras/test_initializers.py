"""Parts of variables begin with the values that one device draws."""

import contextlib

import keras
import numpy as np
import pytest
from keras import initializers

from kerasmgpu.partitioner.runtime import initial_values, sharded_variable
from kerasmgpu.partitioner.runtime.initial_values import ValueInParts
from tests.strategies.sharded import mirrored

SHAPE = (10, 14)


class Doubled(initializers.RandomNormal):
    """A program's own, which works on what Keras's returns."""

    def __call__(self, shape, dtype=None):
        return 2 * super().__call__(shape, dtype)


def a_function(shape, dtype):
    return initializers.GlorotUniform(seed=4)(shape, dtype) + 1


IN_PARTS = {
    "zeros": lambda: "zeros",
    "ones": lambda: "ones",
    "constant": lambda: initializers.Constant(0.3),
    "glorot uniform": lambda: initializers.GlorotUniform(seed=1),
    "truncated": lambda: initializers.VarianceScaling(seed=2),
    "he normal": lambda: initializers.HeNormal(seed=3),
    "untruncated": lambda: initializers.VarianceScaling(
        distribution="untruncated_normal", seed=3
    ),
    "random normal": lambda: initializers.RandomNormal(1.0, 0.5, seed=1),
    "random uniform": lambda: initializers.RandomUniform(-1.0, 3.0, seed=1),
    "truncated normal": lambda: initializers.TruncatedNormal(1.0, seed=1),
    "seed generator": lambda: initializers.RandomNormal(
        seed=keras.random.SeedGenerator(5)
    ),
}
WHOLE = {
    "orthogonal": lambda: initializers.Orthogonal(seed=1),
    "identity": initializers.Identity,
    "subclass": lambda: Doubled(seed=1),
    "function": lambda: a_function,
    "array": lambda: initializers.Constant(np.arange(14.0)),
}


def made(make, scope, dtype):
    """The values of two weights of one initializer, and the values' kinds."""
    kinds, create = [], sharded_variable.create

    def noting(extended, axes, value, *others):
        kinds.append(isinstance(value, ValueInParts))
        return create(extended, axes, value, *others)

    with pytest.MonkeyPatch.context() as patch, scope:
        patch.setattr(sharded_variable, "create", noting)
        layer, initializer = keras.layers.Layer(dtype=dtype), make()
        for _ in range(2):
            layer.add_weight(SHAPE, initializer)
    return layer.get_weights(), kinds


@pytest.mark.parametrize(
    "name, dtype",
    [
        *((name, "float32") for name in (*IN_PARTS, *WHOLE)),
        *((name, "bfloat16") for name in IN_PARTS),
    ],
)
def test_values_are_those_of_one_device(name, dtype):
    make = {**IN_PARTS, **WHOLE}[name]
    expected, _ = made(make, contextlib.nullcontext(), dtype)
    values, kinds = made(make, mirrored(3, "weights").scope(), dtype)
    np.testing.assert_array_equal(values, expected)
    assert kinds == 2 * [name in IN_PARTS]


def test_slots_are_made_in_parts(monkeypatch):
    def whole(self):
        raise AssertionError("A variable was made whole.")

    monkeypatch.setattr(ValueInParts, "whole", whole)
    with mirrored(2, "weights").scope():
        dense = keras.layers.Dense(4, use_bias=False)
        dense.build((None, 6))
        optimizer = keras.optimizers.Adagrad(initial_accumulator_value=0.25)
        optimizer.build(dense.trainable_variables)
    first, second = optimizer.variables[2].value.parts
    assert first.shape == second.shape == (3, 4)
    np.testing.assert_array_equal(first, np.full((3, 4), 0.25))


def test_a_variable_that_stays_whole_has_its_value(monkeypatch):
    monkeypatch.setattr(initial_values, "_MOST_BYTES", 64)
    make = IN_PARTS["glorot uniform"]
    expected, _ = made(make, contextlib.nullcontext(), "float32")
    scope = mirrored(2, "weights", min_shard_bytes=1 << 20).scope()
    values, kinds = made(make, scope, "float32")
    np.testing.assert_array_equal(values, expected)
    assert not kinds
