"""XLA clusters: operations of one replica without communication in between.

XLA can't compile a function with collectives. The operations of a replica are
cut at communication and at operations without an XLA kernel; each cluster
becomes a function that XLA compiles.
"""

import collections
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf
from absl import logging
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.python.framework import kernels

from kerasmgpu.partitioner import graph as graphs
from kerasmgpu.partitioner.records import Trait, record
from kerasmgpu.partitioner.writing import (
    Writer,
    argument,
    function_attribute,
    node_name,
)

if TYPE_CHECKING:
    from kerasmgpu.partitioner.building import Build

FEWEST = 2
"""Operations of the smallest cluster."""

_WORTHWHILE = {Trait.DRAWS, Trait.FRAGILE, Trait.XLA_BODIES}
"""Traits of operations that are clusters by themselves: loops are many operations,
XLA's draws differ from the kernels', and its convolutions accept empty shares."""

_numbers = itertools.count()

_Nodes = Mapping[str, node_def_pb2.NodeDef]
"""Nodes of a function by name."""

_Edge = tuple[str, str]
"""A reference and the name of the node that takes it; `""` for the function's
outputs."""


class _Key(NamedTuple):
    """The cluster of a node; see `_clusters_by_level`."""

    device: str
    level: int
    label: str

    @property
    def name(self) -> str:
        """Name of the call of the cluster's function."""
        return f"compiled/{self.level}_{self.label}"


def compile_clusters(build: "Build", outputs: list[str]) -> list[str]:
    """Replaces clusters of a function by calls of compiled functions.

    If XLA doesn't compile the function, or compiles it as a part of the
    enclosing one, as the body of a replica's loop, only operations of a
    `tf.function(jit_compile=True)` are clustered (`graph.MUST_COMPILE`).

    Args:
        build: `building.Build` of the function, with all its nodes written.
        outputs: References to the outputs of the function.

    Returns:
        The new references to the outputs.
    """
    only_marked = not build.is_compiled or build.replicas.is_anywhere
    if only_marked and not _has_marks(build.graph):
        return outputs
    writer, library = build.writer, build.library
    nodes = writer.needed_nodes(outputs)
    for node in nodes.values():
        if node.op == "Const":  # Control inputs only delay a constant.
            del node.input[:]
    edges = [
        (reference, name)
        for name, node in nodes.items()
        for reference in node.input
    ]
    edges += [(reference, "") for reference in outputs]
    cluster_of = _clusters(build, nodes, edges, only_marked)
    clusters: dict[_Key, _Cluster] = collections.defaultdict(_Cluster)
    for name, key in cluster_of.items():
        clusters[key].names.append(name)
    for reference, name in edges:
        source = node_name(reference)
        before, after = cluster_of.get(source), cluster_of.get(name)
        if before == after or source in nodes and nodes[source].op == "Const":
            continue
        if after is not None:
            clusters[after].add_argument(reference)
        if before is not None:
            clusters[before].add_result(reference, before.name)
    replacements: dict[str, str] = {}
    for cluster in clusters.values():
        replacements.update(cluster.replacements)
    for key, cluster in clusters.items():
        function = cluster.function(writer, nodes)
        library.append(function)
        cluster.call(writer, function.signature.name, key, replacements)
    writer.replace(set(cluster_of), replacements)
    if not only_marked:
        _log_uncompiled(build, nodes)
    return [replacements.get(reference, reference) for reference in outputs]


def _has_marks(graph: graphs.Graph) -> bool:
    """Whether a graph has operations of `tf.function(jit_compile=True)`."""
    return any(
        graphs.MUST_COMPILE in node.definition.attr for node in graph.nodes
    )


class _Cluster:
    """Nodes that become one compiled function.

    Attributes:
        names: Their names, in order.
        replacements: Maps references to outputs of the nodes, and control
            dependencies on them, to those of the call.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.replacements: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._controls: dict[str, None] = {}

    def add_argument(self, reference: str) -> None:
        """Adds an input, or a control dependency, of the cluster."""
        if reference[0] == "^":
            self._controls[reference] = None
        else:
            self._arguments.setdefault(
                reference, f"argument_{len(self._arguments)}"
            )

    def add_result(self, reference: str, call: str) -> None:
        """Adds an output of the cluster, or a control dependency on it.

        Args:
            reference: Reference to the output, or the control dependency.
            call: Name of the call.
        """
        if reference[0] == "^":
            self.replacements[reference] = f"^{call}"
        elif reference not in self.replacements:
            number = sum(other[0] != "^" for other in self.replacements)
            self.replacements[reference] = f"{call}:output:{number}"

    @property
    def results(self) -> list[str]:
        """References to the outputs of the function."""
        return [r for r in self.replacements if r[0] != "^"]

    def function(
        self, writer: Writer, nodes: _Nodes
    ) -> function_pb2.FunctionDef:
        """Returns the cluster as a function."""
        written = function_pb2.FunctionDef()
        written.attr["_XlaMustCompile"].b = True
        written.signature.name = f"kerasmgpu_compiled_{next(_numbers)}"
        inside = set(self.names)
        constants: dict[str, node_def_pb2.NodeDef] = {}
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

    def call(
        self,
        writer: Writer,
        function: str,
        key: _Key,
        replacements: Mapping[str, str],
    ) -> None:
        """Writes the call of the function.

        Args:
            writer: Writer of the calling function.
            function: Name of the cluster's function.
            key: The cluster's key.
            replacements: Those of all clusters.
        """
        attributes = {
            "Tin": [writer.dtype(r) for r in self._arguments],
            "Tout": [writer.dtype(r) for r in self.results],
            "f": function_attribute(function),
            "_XlaMustCompile": True,
        }
        writer.op(
            "PartitionedCall",
            [replacements.get(r, r) for r in self._arguments],
            attributes,
            key.device,
            key.name,
            [replacements.get(r, r)[1:] for r in self._controls],
        )


def _clusters(
    build: "Build",
    nodes: _Nodes,
    edges: Sequence[_Edge],
    only_marked: bool,
) -> dict[str, _Key]:
    """Maps nodes to XLA clusters."""
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
        cluster_of = _clusters_by_level(nodes, compilable, build.twins)
        get = cluster_of.get
        with_lists = {
            cluster
            for edge in lists
            if get(edge[0]) != get(edge[1])
            for cluster in map(get, edge)
        }
        # A compiled function neither takes nor returns lists of tensors.
        excluded = {
            name
            for name in itertools.chain(*lists)
            if name in cluster_of and cluster_of[name] in with_lists
        }
        if not excluded:
            fewest = 1 if only_marked else FEWEST
            return _large_enough(nodes, cluster_of, fewest)
        compilable -= excluded


def _clusters_by_level(
    nodes: _Nodes,
    compilable: set[str],
    twins: Mapping[str, Sequence[str]],
) -> dict[str, _Key]:
    """Maps nodes to clusters by device and level.

    The level of a node is the largest number of clusters on a path to it.
    Between nodes of one device and level there is no path that leaves the
    device, so they can be one function.

    Twins (`Build.twins`) have clusters of their own, which are equal on all
    devices: rounding depends on the other operations of a cluster, and copies
    of a variable would drift apart.
    """
    devices: dict[str, int] = {}
    levels: dict[str, int] = {}
    early: set[str] = set()
    cluster_of: dict[str, _Key] = {}

    def inputs_of(name: str) -> list[str]:
        return [
            other
            for other in map(node_name, nodes[name].input)
            if other in nodes and nodes[other].op != "Const"
        ]

    def is_cut(one: str, other: str) -> bool:
        return (
            not compilable.issuperset((one, other))
            or nodes[one].device != nodes[other].device
            or (one in twins) != (other in twins)
        )

    for name, node in nodes.items():
        if name not in compilable and early.issuperset(inputs_of(name)):
            # Reads of variables, sizes: they precede all clusters.
            early.add(name)
        levels[name] = max(
            (
                levels[other] + is_cut(twin, other)
                for twin in twins.get(name, [name])
                if twin in nodes
                for other in inputs_of(twin)
                if other not in early
            ),
            default=0,
        )
        if name in compilable and node.op != "Const":
            device = str(devices.setdefault(node.device, len(devices)))
            label = f"{device}_twins" if name in twins else device
            cluster_of[name] = _Key(node.device, levels[name], label)
    return cluster_of


def _large_enough(
    nodes: _Nodes, cluster_of: Mapping[str, _Key], fewest: int
) -> dict[str, _Key]:
    """Drops clusters of fewer operations than `fewest`."""
    size = collections.Counter(cluster_of.values())
    for name, key in cluster_of.items():
        if not _WORTHWHILE.isdisjoint(record(nodes[name].op).traits):
            size[key] += fewest
    return {
        name: key for name, key in cluster_of.items() if size[key] >= fewest
    }


def _is_compilable(
    build: "Build", name: str, node: node_def_pb2.NodeDef
) -> bool:
    if (
        not _is_on_replica(build, name, node)
        or Trait.OUTSIDE_XLA in record(node.op).traits
    ):
        return False
    if Trait.SIZED_BY_VALUES in record(node.op).traits:
        return False
    device_type = "XLA_CPU_JIT" if build.replicas.has_cpus else "XLA_GPU_JIT"
    if not _has_kernel(node.op, device_type):
        return False
    if (
        Trait.XLA_BODIES not in record(node.op).traits
        and graphs.op_definition(node.op).is_stateful
    ):
        return False
    return not _UNSUPPORTED_TYPES & _types(node)


def _is_on_replica(
    build: "Build", name: str, node: node_def_pb2.NodeDef
) -> bool:
    """Whether a node runs on a replica's device, and not on the host."""
    return name not in build.writer.on_host and node.device in (
        build.replicas.devices
    )


_UNSUPPORTED_TYPES = {tf.string.as_datatype_enum, tf.resource.as_datatype_enum}


def _types(node: node_def_pb2.NodeDef) -> set[int]:
    """Types among the attributes of a node."""
    found: set[int] = set()
    for value in node.attr.values():
        found.add(value.type)
        found.update(value.list.type)
    return found


@functools.cache
def _has_kernel(type: str, device_type: str) -> bool:
    """Whether XLA has a kernel for a type of operation."""
    _load_kernels()
    registered = kernels.get_registered_kernels_for_op(type).kernel
    return any(kernel.device_type == device_type for kernel in registered)


@functools.cache
def _load_kernels() -> None:
    """Registers XLA's kernels: its first compilation does."""
    with tf.init_scope():
        tf.function(lambda x: x + 1.0, jit_compile=True)(0.0)


def _log_uncompiled(build: "Build", nodes: _Nodes) -> None:
    """Logs the replicas' operations that XLA can't compile, in one line."""
    uncompiled = sorted(
        {
            node.op
            for name, node in nodes.items()
            if _is_on_replica(build, name, node)
            and Trait.OUTSIDE_XLA not in record(node.op).traits
            and node.op != "Const"
            and not _is_compilable(build, name, node)
        }
    )
    if uncompiled:
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: jit_compile=True compiles all but these operations, "
            "which XLA can't: %s.",
            1,
            ", ".join(uncompiled),
        )
