"""Plans of small functions of rows, and what they do on replicas."""

import functools

import tensorflow as tf

from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.devices import device_name
from tests.partitioner.checking import check
from tests.partitioner.program import Input, Setting

ROWS = None
"""Size of an axis of rows: not known while a function is traced."""


class Planned:
    """The plan of a function for two replicas.

    Args:
        function: Function of tensors.
        *specifications: For each, its shape, its shape and its type, or a
            `tf.TypeSpec`.

    Attributes:
        kinds: Text for each output: `"rows on 0"`, `"partial sum"`,
            `"replicated"`; `"rows on 0, 3 * rows * 2"` where rows are mixed
            with others on their axis.
        gathered: Types of operations that have no rule for what they get.
    """

    def __init__(self, function, *specifications):
        program = Partitioned(function, replicas(2)).program(
            tuple(map(_specification, specifications))
        )
        plans, graph = program.plans[0], program.trace.graph
        self.kinds = [text_of(plans.kinds[tensor]) for tensor in graph.outputs]
        self.gathered = [
            node.type
            for node in graph.nodes
            if node in plans.nodes and not plans.nodes[node].rule
        ]


def kinds_of(function, *specifications):
    """Kinds of a function's outputs; see `Planned`."""
    return Planned(function, *specifications).kinds


def same(step, *inputs, num_replicas=2, static=False, variables=()):
    """Checks that replicas do what one device does.

    Args:
        step: Function of variables and tensors; returns a tuple of tensors.
        *inputs: For each, its shape, or its shape and its type; the first axis
            is one of rows.
        num_replicas: Number of replicas.
        static: Whether TensorFlow knows the number of rows.
        variables: `program.Variable`s.
    """
    inputs = {f"x{n}": given(one, n) for n, one in enumerate(inputs)}
    variables = {f"w{n}": variable for n, variable in enumerate(variables)}
    setting = Setting(num_replicas, static)
    check(step, inputs, variables, setting, "float32")


def given(shape, seed=0):
    """An `Input` of small whole numbers of a shape, or a shape and a type."""
    dtype = "float32"
    if shape and isinstance(shape[-1], str):
        *shape, dtype = shape
    return Input("whole", seed, tuple(shape), dtype)


@functools.cache
def replicas(number, type=None):
    """So many devices, which needn't exist to be planned for."""
    names = [
        "/job:localhost/replica:0/task:0/device:"
        + (f"{type}:{n}" if type else device_name(n))
        for n in range(number)
    ]
    host = "/job:localhost/replica:0/task:0/device:CPU:0"
    return Replicas(Mesh.on(names, host))


def _specification(shape):
    if isinstance(shape, tf.TypeSpec):
        return shape
    dtype = "float32"
    if shape and isinstance(shape[-1], str):
        *shape, dtype = shape
    return tf.TensorSpec(shape, dtype)


def text_of(kind):
    """A kind as `Planned.kinds` has it."""
    if not isinstance(kind, Sharded):
        return str(kind)
    if (kind.outer, kind.inner) == (1, 1):
        return f"rows on {kind.axis}"
    return f"rows on {kind.axis}, {kind.outer} * rows * {kind.inner}"
