"""Outlines XLA clusters: each becomes a function that XLA compiles.

`xla_clusters.py` decides which nodes are a cluster.
"""

import collections
from collections.abc import Mapping

from tensorflow.core.framework import function_pb2, node_def_pb2

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.ir.lowered import Cluster
from kerasmgpu.partitioner.lowering import xla_replacements
from kerasmgpu.partitioner.lowering.content_names import add_by_content
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.writing import Nodes, Writer
from kerasmgpu.partitioner.lowering.xla_clusters import Key, clusters_of
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import (
    XLA_MUST_COMPILE,
    argument,
    node_name,
)
from kerasmgpu.partitioner.step.references import Reference


def cluster_for_xla(build: Function) -> None:
    """Replaces clusters of a function by calls of compiled functions.

    If XLA doesn't compile the function, or compiles it as a part of the
    enclosing one, as the body of a replica's loop, only operations of a
    `tf.function(jit_compile=True)` are clustered (`graph.MUST_COMPILE`).
    """
    only_marked = not build.program.form.is_compiled or build.mesh.is_anywhere
    if only_marked and not _has_marks(build.graph):
        return
    writer, outputs = build.writer, build.outputs
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
    cluster_of = clusters_of(build, nodes, edges, only_marked)
    clusters: dict[Key, _Cluster] = collections.defaultdict(_Cluster)
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
            # Twins return the same: rounding depends on that, too.
            for twin in build.twins.get(source, [source]):
                if twin in cluster_of:
                    other = reference.replace(source, twin, 1)
                    clusters[cluster_of[twin]].add_result(other)
    replacements: dict[str, str] = {}
    for key, cluster in clusters.items():
        replacements.update(cluster.replacements(key.name))
    values = build.values()
    for key, cluster in clusters.items():
        function, origins = add_by_content(
            cluster.function(writer, nodes, values), build.library
        )
        cluster.call(writer, function, key, replacements)
        build.program.clusters.append(
            Cluster(
                writer.last,
                key.device,
                key.level,
                function,
                origins,
                [nodes[name].op for name in cluster.names],
                [values.get(r, r) for r in cluster.arguments],
                [values.get(r, r) for r in cluster.results],
            )
        )
    writer.replace(set(cluster_of), replacements)
    build.outputs = [replacements.get(r, r) for r in outputs]


def _has_marks(graph: graphs.Graph) -> bool:
    """Whether a graph has operations of `tf.function(jit_compile=True)`."""
    return any(
        graphs.MUST_COMPILE in node.definition.attr for node in graph.nodes
    )


class _Cluster:
    """Nodes that become one compiled function.

    Attributes:
        names: Their names, in order.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._results: set[str] = set()
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

    def add_result(self, reference: str) -> None:
        """Adds an output of the cluster, or a control dependency on it."""
        self._results.add(reference)

    def replacements(self, call: str) -> dict[str, str]:
        """Maps what is added as results to outputs of the call of that name."""
        made = dict.fromkeys(self._results, f"^{call}")
        for number, reference in enumerate(self.results):
            made[reference] = f"{call}:output:{number}"
        return made

    @property
    def arguments(self) -> list[str]:
        """References to the inputs of the function."""
        return list(self._arguments)

    @property
    def results(self) -> list[str]:
        """References to the outputs of the function, in order of its nodes."""
        position = {name: number for number, name in enumerate(self.names)}
        made = [r for r in self._results if r[0] != "^"]
        return sorted(made, key=lambda r: (position[node_name(r)], len(r), r))

    def function(
        self, writer: Writer, nodes: Nodes, values: Mapping[str, Value]
    ) -> function_pb2.FunctionDef:
        """Returns the cluster as a function.

        Args:
            values: Its values by reference, as far as it has any.
        """
        written = function_pb2.FunctionDef()
        written.attr[XLA_MUST_COMPILE].b = True
        inside = set(self.names)
        constants: dict[str, node_def_pb2.NodeDef] = {}
        outputs: dict[str, str] = {}
        for name in self.names:
            node = node_def_pb2.NodeDef()
            node.CopyFrom(nodes[name])
            del node.input[:]
            for reference in nodes[name].input:
                source = node_name(reference)
                if source in inside:
                    node.input.append(outputs.get(reference, reference))
                elif source in nodes and nodes[source].op == "Const":
                    # XLA needs some inputs as constants.
                    constants[source] = nodes[source]
                    node.input.append(reference)
                elif reference[0] != "^":
                    node.input.append(self._arguments[reference])
            taken = values.get(next(iter(nodes[name].input), ""))
            rank = None if taken is None else taken.tensor.rank
            output = xla_replacements.replaced(node, rank, written)
            if output is None:
                written.node_def.append(node)
            else:
                (own,) = _outputs_of(nodes[name])
                outputs[own] = f"{name}:{output}:0"
        for constant in constants.values():
            node = written.node_def.add()
            node.CopyFrom(constant)
            del node.input[:]
        for reference, name in self._arguments.items():
            dtype = writer.reference(reference).dtype
            written.signature.input_arg.append(argument(name, dtype))
        for number, reference in enumerate(self.results):
            output = f"output_{number}"
            dtype = writer.reference(reference).dtype
            written.signature.output_arg.append(argument(output, dtype))
            written.ret[output] = outputs.get(reference, reference)
        return written

    def call(
        self,
        writer: Writer,
        function: str,
        key: Key,
        replacements: Mapping[str, str],
    ) -> None:
        """Writes the call of the function.

        Args:
            replacements: Those of all clusters.
        """
        writer.op(
            "PartitionedCall",
            [
                Reference(replacements.get(r, r), writer.reference(r).dtype)
                for r in self._arguments
            ],
            key.device,
            key.name,
            [replacements.get(r, r)[1:] for r in self._controls],
            Tout=tuple(writer.reference(r).dtype for r in self.results),
            f=function,
            **{XLA_MUST_COMPILE: True},
        )


def _outputs_of(node: node_def_pb2.NodeDef) -> list[str]:
    return [f"{node.name}:{name}" for name, _ in graphs.outputs_of(node)]
