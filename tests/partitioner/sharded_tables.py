"""Sharded tables, and steps that are compared with those of one device."""

import contextlib

import numpy as np
import tensorflow as tf

import kerasmgpu

TABLE = np.arange(1, 22, dtype="float32").reshape(7, 3)


def tables(strategy=None, number=1):
    """Variables of rows 1, 2, 3 …"""
    with strategy.scope() if strategy else contextlib.nullcontext():
        made = [tf.Variable(TABLE * (n + 1)) for n in range(number)]
    if strategy:
        assert all(hasattr(table, "parts") for table in made)
    return made


def both(function, strategy, *arguments, number=1):
    """Outputs and tables of a function on one device, and of its replicas."""
    found = []
    for one in (None, strategy):
        variables = tables(one, number)

        def step(*arguments, variables=variables):
            return function(*variables, *arguments)

        with one.scope() if one else contextlib.nullcontext():
            step = kerasmgpu.partition(step) if one else tf.function(step)
        outputs = step(*map(tf.constant, arguments))
        found.append(
            (
                [np.asarray(v) for v in tf.nest.flatten(outputs)],
                [v.numpy() for v in variables],
            )
        )
    return found


def assert_same(function, strategy, *arguments, number=1):
    (outputs, values), (own_outputs, own_values) = both(
        function, strategy, *arguments, number=number
    )
    for expected, own in zip(outputs + values, own_outputs + own_values):
        np.testing.assert_array_equal(own, expected)
    return outputs, values
