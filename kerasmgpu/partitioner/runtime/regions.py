"""Marks what a function adds to a trace as a region to compute again.

`step/recompute.py` lets the backward pass run copies of it. `Graph._attr_scope`
is private (TensorFlow 2.18 to 2.21).
"""

import contextlib
import itertools
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kerasmgpu.partitioner.step.graph import REGIONS

_numbers = itertools.count()


@contextlib.contextmanager
def region() -> Iterator[None]:
    """Context in which all operations belong to a new region of the trace.

    Regions in it are parts of it. No effect on operations that run eagerly.
    """
    if tf.executing_eagerly():
        yield
        return
    graph = tf.compat.v1.get_default_graph()
    around = graph._attr_scope_map.get(REGIONS)
    name = str(next(_numbers))
    if around is not None:
        name = f"{around.s.decode()}/{name}"
    value = attr_value_pb2.AttrValue(s=name.encode())
    with graph._attr_scope({REGIONS: value}):
        yield
