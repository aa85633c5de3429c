"""XLA: each stretch of a replica's operations without communication is compiled.

XLA refuses a function in which replicas meet. So the operations of a replica
are cut where they wait for others, or for what XLA doesn't know, and each piece
becomes a function that XLA compiles.
"""

import collections
import functools
import itertools

import tensorflow as tf
from absl import logging
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import kernels

from kerasmgpu.partitioner import graph as graphs
from kerasmgpu.partitioner.records import Trait, record
from kerasmgpu.partitioner.writing import (
    argument,
    function_attribute,
    node_name,
)

FEWEST = 2
"""Operations of the smallest stretch that is compiled."""

_WORTHWHILE = {Trait.DRAWS, Trait.FRAGILE, Trait.XLA_BODIES}
"""Many operations in one; XLA draws other numbers, and its convolutions take no
rows."""

_numbers = itertools.count()


def compile_stretches(build, outputs):
    """Replaces stretches of a written function by calls of compiled ones.

    Of a function that is not compiled, or in one piece with what is around it
    as the body of one replica's loop is, these are only the operations for
    which the traced function says so (`graph.MUST_COMPILE`).

    Args:
        build: `building.Build` of the function, with all its nodes written.
        outputs: References to what the function returns.

    Returns:
        The references to what it returns now.
    """
    only_marked = not build.is_compiled or build.replicas.is_anywhere
    if only_marked and not _has_marks(build.graph):
        return outputs
    writer, library = build.writer, build.library
    nodes = writer.needed_nodes(outputs)
    for node in nodes.values():
        if node.op == "Const":  # It waits for nobody, so nothing waits for it.
            del node.input[:]
    edges = [
        (reference, name)
        for name, node in nodes.items()
        for reference in node.input
    ]
    edges += [(reference, None) for reference in outputs]
    stretch_of = _stretches(build, nodes, edges, only_marked)
    stretches = collections.defaultdict(_Stretch)
    for name, key in stretch_of.items():
        stretches[key].names.append(name)
    for reference, name in edges:
        source = node_name(reference)
        before, after = stretch_of.get(source), stretch_of.get(name)
        if before == after or source in nodes and nodes[source].op == "Const":
            continue
        if after is not None:
            stretches[after].takes(reference)
        if before is not None:
            stretches[before].gives(reference, _name(before))
    moved = {}
    for stretch in stretches.values():
        moved.update(stretch.moved)
    for key, stretch in stretches.items():
        function = stretch.function(writer, nodes, stretch_of)
        library.append(function)
        stretch.call(writer, function.signature.name, key, moved)
    writer.replace(nodes, set(stretch_of), moved)
    if not only_marked:
        _say_what_is_left(build, nodes)
    return [moved.get(reference, reference) for reference in outputs]


def _has_marks(graph):
    return any(
        graphs.MUST_COMPILE in node.definition.attr for node in graph.nodes
    )


class _Stretch:
    """Nodes that become one compiled function.

    Attributes:
        names: Their names, in order.
        moved: `{reference: reference}`: what the nodes make, as the call makes
            it.
    """

    def __init__(self):
        self.names = []
        self.moved = {}
        self._arguments = {}
        self._controls = {}

    def takes(self, reference):
        """Notes what a node of the stretch needs from outside."""
        if reference[0] == "^":
            self._controls[reference] = None
        else:
            self._arguments.setdefault(
                reference, f"argument_{len(self._arguments)}"
            )

    def gives(self, reference, call):
        """Notes what others need of a node of the stretch."""
        if reference[0] == "^":
            self.moved[reference] = f"^{call}"
        elif reference not in self.moved:
            number = sum(other[0] != "^" for other in self.moved)
            self.moved[reference] = f"{call}:output:{number}"

    @property
    def results(self):
        """References to what the function returns."""
        return [reference for reference in self.moved if reference[0] != "^"]

    def function(self, writer, nodes, stretch_of):
        """The function that the nodes become."""
        written = function_pb2.FunctionDef()
        written.attr["_XlaMustCompile"].b = True
        written.signature.name = f"kerasmgpu_compiled_{next(_numbers)}"
        inside, constants = set(self.names), {}
        for name in self.names:
            node = written.node_def.add()
            node.CopyFrom(nodes[name])
            node.device = ""
            node.attr.pop("_lower_using_switch_merge", None)
            del node.input[:]
            for reference in nodes[name].input:
                source = node_name(reference)
                if source in inside:
                    node.input.append(reference)
                elif source in nodes and nodes[source].op == "Const":
                    constants[source] = nodes[source]
                    node.input.append(reference)
                elif reference[0] != "^":
                    node.input.append(self._arguments[reference])
        for constant in constants.values():
            node = written.node_def.add()
            node.CopyFrom(constant)
            node.device = ""
            del node.input[:]
        for reference, name in self._arguments.items():
            dtype = writer.dtype(reference)
            written.signature.input_arg.append(argument(name, dtype))
        for number, reference in enumerate(self.results):
            output, dtype = f"output_{number}", writer.dtype(reference)
            written.signature.output_arg.append(argument(output, dtype))
            written.ret[output] = reference
        return written

    def call(self, writer, function, key, moved):
        """Writes the call of the function."""
        device, *_ = key
        attributes = {
            "Tin": [writer.dtype(r) for r in self._arguments],
            "Tout": [writer.dtype(r) for r in self.results],
            "f": function_attribute(function),
            "_XlaMustCompile": True,
        }
        writer.op(
            "PartitionedCall",
            [moved.get(r, r) for r in self._arguments],
            attributes,
            device,
            _name(key),
            [moved.get(r, r)[1:] for r in self._controls],
        )


def _name(key):
    """The name of the call of a stretch; see `_levelled`."""
    _, level, label = key
    return f"compiled/{level}_{label}"


def _stretches(build, nodes, edges, only_marked):
    """For each node that is compiled, the stretch that it belongs to."""
    compilable = {
        name
        for name, node in nodes.items()
        if _is_compilable(build, name, node)
        and (not only_marked or graphs.MUST_COMPILE in node.attr)
    }
    lists = [
        (node_name(reference), name)
        for reference, name in edges
        if reference[0] != "^" and build.writer.dtype(reference) == tf.variant
    ]
    while True:
        stretch_of = _levelled(nodes, compilable, build.twins)
        get = stretch_of.get
        passing = {
            stretch
            for edge in lists
            if get(edge[0]) != get(edge[1])
            for stretch in map(get, edge)
        }
        # A compiled function neither takes nor gives lists of tensors.
        apart = {
            name
            for name in itertools.chain(*lists)
            if name in stretch_of and stretch_of[name] in passing
        }
        if not apart:
            return _worthwhile(nodes, stretch_of, 1 if only_marked else FEWEST)
        compilable -= apart


def _levelled(nodes, compilable, twins):
    """For each node that can be compiled, its stretch.

    A stretch is `(device, level, name)`. The level is how many stretches a node
    comes after. Between nodes of one device and level there is no path that
    leaves the device, so they can be one function.

    Twins have stretches of their own, which are alike on all devices: XLA rounds
    in other ways where it compiles other operations with them, and copies of
    variables would drift apart.
    """
    devices, levels, early = {}, {}, set()
    stretch_of = {}

    def before(name):
        return [
            other
            for other in map(node_name, nodes[name].input)
            if other in nodes and nodes[other].op != "Const"
        ]

    def is_cut(one, other):
        return (
            not compilable.issuperset((one, other))
            or nodes[one].device != nodes[other].device
            or (one in twins) != (other in twins)
        )

    for name, node in nodes.items():
        if name not in compilable and early.issuperset(before(name)):
            # Reads of variables, sizes: there before anything is computed.
            early.add(name)
        levels[name] = max(
            (
                levels[other] + is_cut(twin, other)
                for twin in twins.get(name, [name])
                if twin in nodes
                for other in before(twin)
                if other not in early
            ),
            default=0,
        )
        if name in compilable and node.op != "Const":
            device = str(devices.setdefault(node.device, len(devices)))
            label = f"{device}_twins" if name in twins else device
            stretch_of[name] = (node.device, levels[name], label)
    return stretch_of


def _worthwhile(nodes, stretch_of, fewest):
    """Leaves out stretches that are tiny."""
    size = collections.Counter(stretch_of.values())
    for name, key in stretch_of.items():
        if not _WORTHWHILE.isdisjoint(record(nodes[name].op).traits):
            # A loop is many operations; XLA draws other numbers, and its
            # convolutions take no rows.
            size[key] += fewest
    return {
        name: key for name, key in stretch_of.items() if size[key] >= fewest
    }


def _is_compilable(build, name, node):
    if (
        not _is_on_replica(build, name, node)
        or Trait.OUTSIDE_XLA in record(node.op).traits
    ):
        return False
    if Trait.SIZED_BY_VALUES in record(node.op).traits:
        return False
    kind = "XLA_CPU_JIT" if build.replicas.has_cpus else "XLA_GPU_JIT"
    if not _has_kernel(node.op, kind):
        return False
    if (
        Trait.XLA_BODIES not in record(node.op).traits
        and graphs.op_definition(node.op).is_stateful
    ):
        return False
    return not _NO_TYPES & _types(node)


def _is_on_replica(build, name, node):
    """Whether a node is one that a replica runs on its own."""
    return name not in build.writer.on_host and node.device in (
        build.replicas.devices
    )


_NO_TYPES = {tf.string.as_datatype_enum, tf.resource.as_datatype_enum}


def _types(node):
    """Types that are among the attributes of a node."""
    found = set()
    for value in node.attr.values():
        found.add(value.type)
        found.update(value.list.type)
    return found


@functools.cache
def _has_kernel(type, kind):
    """Whether XLA has a kernel for a type of operation."""
    _load_kernels()
    registered = kernels.get_registered_kernels_for_op(type).kernel
    return any(kernel.device_type == kind for kernel in registered)


@functools.cache
def _load_kernels():
    """XLA's kernels are registered when it first compiles something."""
    with tf.init_scope():
        tf.function(lambda x: x + 1.0, jit_compile=True)(0.0)


def _say_what_is_left(build, nodes):
    """One line about operations on replicas that XLA doesn't know."""
    left = sorted(
        {
            node.op
            for name, node in nodes.items()
            if _is_on_replica(build, name, node)
            and Trait.OUTSIDE_XLA not in record(node.op).traits
            and node.op != "Const"
            and not _is_compilable(build, name, node)
        }
    )
    if left:
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: jit_compile=True compiles all but these operations, "
            "which XLA can't: %s.",
            1,
            ", ".join(left),
        )
