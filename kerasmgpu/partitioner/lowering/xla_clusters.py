"""Decides which nodes XLA compiles together: operations without communication.

XLA can't compile a function with collectives. The operations of a replica are
cut at communication and at operations without an XLA kernel.

This pass runs on the nodes of a written function, not on instructions: one
instruction's nodes can be in several clusters. The parts of a sum are packed on
each replica and added on the first one; rows are cut out of a whole value behind
a collective; sizes on the host lie in between.
"""

import collections
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging
from tensorflow.core.framework import node_def_pb2

from kerasmgpu.partitioner.lowering.content_names import functions_in
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.once import nodes_of_once
from kerasmgpu.partitioner.lowering.writing import Nodes
from kerasmgpu.partitioner.lowering.xla_blocks import Cutter
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import node_name
from kerasmgpu.partitioner.step.kernels import has_kernels
from kerasmgpu.partitioner.step.records import Trait, record

FEWEST = 2
"""Operations of the smallest cluster."""

_WORTHWHILE = {Trait.DRAWS, Trait.FRAGILE, Trait.XLA_BODIES}
"""Traits of operations that are clusters by themselves: loops are many operations,
XLA's draws differ from the kernels', and its convolutions accept empty shares."""

WIDE = 9
"""Tensors that an operation takes and makes from which on it joins or divides
many."""

Edge = tuple[str, str]
"""A reference and the name of the node that takes it; `""` for the function's
outputs."""


class Key(NamedTuple):
    """The cluster of a node; see `_by_level`, and `_in_parts` for its part."""

    device: str
    level: int
    label: str
    part: int = 0

    @property
    def name(self) -> str:
        """Name of the call of the cluster's function."""
        part = f"_part_{self.part}" if self.part else ""
        return f"compiled/{self.level}_{self.label}{part}"


def clusters_of(
    build: Function, nodes: Nodes, edges: Sequence[Edge], only_marked: bool
) -> dict[str, Key]:
    """Maps nodes to XLA clusters."""
    compilable = {
        name
        for name, node in nodes.items()
        if _is_compilable(build, name, node)
        and (not only_marked or graphs.MUST_COMPILE in node.attr)
    }
    if not only_marked:
        if not build.program.form.is_xla_form:
            _log_uncompiled(build, nodes, compilable)
        compilable -= _sent_early(build, nodes, edges)
    lists = [
        (node_name(reference), name)
        for reference, name in edges
        if reference[0] != "^"
        and build.writer.reference(reference).dtype == tf.variant
    ]
    once = nodes_of_once(build, nodes)
    while True:
        cluster_of = _by_level(nodes, compilable, build.twins, once)
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
            break
        compilable -= excluded
    if only_marked:
        return cluster_of
    whole = {get(name) for name in itertools.chain(*lists)}
    parts = _in_parts(build, nodes, cluster_of, whole)
    return _worthwhile(nodes, _without_wide_moves(nodes, parts))


def _sent_early(
    build: Function, nodes: Nodes, edges: Sequence[Edge]
) -> set[str]:
    """Operations on sizes and constants that other devices take results of.

    They run once, such as the first ones of a gradient. In a cluster they would
    have the other devices wait for all of the first one's forward and backward
    pass.
    """
    known: set[str] = set(build.sizes.imports.values())
    for name, node in nodes.items():
        sources = list(map(node_name, node.input))
        traits = record(node.op).traits
        if Trait.OF_SHAPES in traits:
            is_known = sources[0] not in nodes  # That of an input.
        else:
            is_known = known.issuperset(sources)
        if is_known and _WORTHWHILE.isdisjoint(traits):
            known.add(name)
    takers = collections.defaultdict(list)
    for reference, name in edges:
        if name:
            takers[node_name(reference)].append(name)
    early: set[str] = set()
    for name in reversed(list(nodes)):
        if name in known and any(
            taker in early or nodes[taker].device != nodes[name].device
            for taker in takers[name]
        ):
            early.add(name)
    return early


def _by_level(
    nodes: Nodes,
    compilable: set[str],
    twins: Mapping[str, Sequence[str]],
    once: set[str],
) -> dict[str, Key]:
    """Maps nodes to clusters by device and level.

    The level of a node is the largest number of clusters on a path to it.
    Between nodes of one device and level there is no path that leaves the
    device, so they can be one function. What runs once (`once.py`) is on a
    device of its own.

    Twins (`Build.twins`) have clusters of their own, which are equal on all
    devices: rounding depends on the other operations of a cluster, and copies
    of a variable would drift apart.
    """
    devices: dict[str, int] = {}
    levels: dict[str, int] = {}
    early: set[str] = set()
    cluster_of: dict[str, Key] = {}

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
            or (one in once) != (other in once)
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
            label = device
            if name in once:
                label = "once"
            elif name in twins:
                label = f"{device}_twins"
            cluster_of[name] = Key(node.device, levels[name], label)
    return cluster_of


def _in_parts(
    build: Function,
    nodes: Nodes,
    cluster_of: Mapping[str, Key],
    whole: Collection[Key | None],
) -> dict[str, Key]:
    """Cuts clusters where they repeat; see `xla_blocks.py`.

    Args:
        whole: Clusters that stay as they are. So do twins.
    """
    names: dict[Key, list[str]] = collections.defaultdict(list)
    for name, key in cluster_of.items():
        names[key].append(name)
    cutter = Cutter(nodes, build.values(), build.mesh.num)
    made: dict[str, Key] = {}
    for key, own in names.items():
        parts = [own]
        if key not in whole and own[0] not in build.twins:
            parts = cutter.parts(own)
        for number, part in enumerate(parts):
            made.update(dict.fromkeys(part, key._replace(part=number)))
    return made


def _without_wide_moves(
    nodes: Nodes, cluster_of: Mapping[str, Key]
) -> dict[str, Key]:
    """Drops what joins or divides many tensors, first or last in its cluster.

    Such as the packing of gradients that are sent. XLA's time grows with the
    results of a cluster, and it copies what it joins as TensorFlow's kernels do.
    """
    inner = _inner_edges(nodes, cluster_of)
    within = {source for source, _ in inner} & {name for _, name in inner}
    return {
        name: key
        for name, key in cluster_of.items()
        if Trait.MOVES not in record(nodes[name].op).traits
        or _width(nodes[name]) < WIDE
        or name in within
    }


def _width(node: node_def_pb2.NodeDef) -> int:
    """Returns the number of tensors that a node takes and makes."""
    made = sum(1 for _ in graphs.outputs_of(node))
    return sum(reference[0] != "^" for reference in node.input) + made


def _worthwhile(nodes: Nodes, cluster_of: Mapping[str, Key]) -> dict[str, Key]:
    """Drops clusters of fewer operations than `FEWEST`, and what only moves data.

    XLA takes seconds for hundreds of results, and copies what TensorFlow's
    kernels share.
    """
    computes = {
        name
        for name in cluster_of
        if Trait.MOVES not in record(nodes[name].op).traits
    }
    inner = _inner_edges(nodes, cluster_of)
    for source, name in inner:  # In the order of nodes.
        if source in computes:
            computes.add(name)
    for source, name in reversed(inner):
        if name in computes:
            computes.add(source)
    size: collections.Counter[Key] = collections.Counter()
    for name in computes:
        single = _WORTHWHILE.isdisjoint(record(nodes[name].op).traits)
        size[cluster_of[name]] += 1 if single else FEWEST
    return {
        name: key
        for name, key in cluster_of.items()
        if name in computes and size[key] >= FEWEST
    }


def _inner_edges(
    nodes: Nodes, cluster_of: Mapping[str, Key]
) -> list[tuple[str, str]]:
    """Returns `(source, name)` of inputs from the same cluster."""
    return [
        (source, name)
        for name, key in cluster_of.items()
        for source in map(node_name, nodes[name].input)
        if cluster_of.get(source) == key
    ]


def _is_compilable(
    build: Function, name: str, node: node_def_pb2.NodeDef
) -> bool:
    traits = record(node.op).traits
    if (
        not _is_on_replica(build, name, node)
        or not {Trait.OUTSIDE_XLA, Trait.SIZED_BY_VALUES}.isdisjoint(traits)
        or name in build.writer.of_varying_sizes
    ):
        return False
    if build.program.form.is_xla_form and _draws(build, node):
        return False
    device_type = "XLA_CPU_JIT" if build.mesh.has_cpus else "XLA_GPU_JIT"
    if not has_kernels(node.op, device_type):
        return False
    is_stateful = graphs.op_definition(node.op).is_stateful
    if is_stateful and Trait.XLA_BODIES not in traits:
        return False
    return not _UNSUPPORTED_TYPES & _types(node)


def _draws(build: Function, node: node_def_pb2.NodeDef) -> bool:
    """Whether a node, or a function that it calls, draws random numbers."""
    if Trait.DRAWS in record(node.op).traits:
        return True
    called = {one.name for v in node.attr.values() for one in functions_in(v)}
    return any(
        _draws(build, inner)
        for function in build.library
        if function.signature.name in called
        for inner in function.node_def
    )


def _is_on_replica(
    build: Function, name: str, node: node_def_pb2.NodeDef
) -> bool:
    """Whether a node runs on a replica's device, and not on the host."""
    return name not in build.writer.on_host and node.device in (
        build.mesh.devices
    )


_UNSUPPORTED_TYPES = {tf.string.as_datatype_enum, tf.resource.as_datatype_enum}


def _types(node: node_def_pb2.NodeDef) -> set[int]:
    """Types among the attributes of a node."""
    found: set[int] = set()
    for value in node.attr.values():
        found.add(value.type)
        found.update(value.list.type)
    return found


def _log_uncompiled(
    build: Function, nodes: Nodes, compilable: Collection[str]
) -> None:
    """Logs the replicas' operations that XLA can't compile, in one line."""
    uncompiled = sorted(
        {
            node.op
            for name, node in nodes.items()
            if name not in compilable
            and _is_on_replica(build, name, node)
            and Trait.OUTSIDE_XLA not in record(node.op).traits
            and node.op != "Const"
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
