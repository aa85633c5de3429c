"""XLA's clusters of a written step, as StableHLO for GPUs.

TensorFlow's bridge writes what it would give XLA for a GPU, on a machine without
one. Shapes of the clusters' arguments, and the integers on which their
operations depend, are those of the step's batch.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.partitioner.lowering.content_names import functions_in
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step.definitions import is_cluster, set_attributes
from kerasmgpu.prove.called_functions import (
    ARGUMENT,
    Called,
    arguments_of,
    called_by,
)

_MOST_CONTENT = 64
"""Most elements of an argument whose content a cluster may depend on."""

_SHAPES = ("Shape", "ShapeN", "Size", "Rank")


@dataclasses.dataclass(eq=False)
class Cluster:
    """A function that XLA compiles, for arguments of these shapes.

    Attributes:
        step: The `WrittenStep` that calls it.
        function: String, its name in the step's library.
        given: For each argument its `Static`.
        content: For each argument the array that it is in every step, or `None`.
        calls: Names of the nodes that call it.
        nodes: Names that its nodes had in the step.
    """

    step: WrittenStep
    function: str
    given: Sequence[Static]
    content: Sequence[np.ndarray | None]
    calls: list[str]
    nodes: list[str]

    @property
    def is_known(self) -> bool:
        """Whether the shapes of all arguments are known before the step."""
        return all(static.is_known for static in self.given)

    @property
    def takes_integers(self) -> bool:
        """Whether an argument is integers that only a step knows."""
        return any(map(self._is_unknown, self.given, self.content))

    def with_ones(self) -> "Cluster":
        """Returns it with ones for integers that only a step knows."""
        content = [
            np.ones(static.shape, static.dtype.as_numpy_dtype)
            if self._is_unknown(static, content)
            else content
            for static, content in zip(self.given, self.content)
        ]
        return dataclasses.replace(self, content=content)

    def _is_unknown(self, static: Static, content: np.ndarray | None) -> bool:
        is_integer = static.dtype.is_integer or static.dtype.is_bool
        return content is None and is_integer


def clusters_of(steps: Iterable[WrittenStep]) -> list[Cluster]:
    """Returns the clusters of steps, each once, in the order of their calls."""
    found: dict[Any, Cluster] = {}
    for step in steps:
        origins = step.origins()
        for called in called_by(step):
            if called.is_compiled:
                continue
            nodes = [
                node
                for node in called.function.nodes
                if is_cluster(node.definition)
            ]
            contents = iter(_contents(called, nodes))
            for node in nodes:
                given = arguments_of(called, node)
                content = [next(contents) for _ in given]
                name = node.definition.attr["f"].func.name
                key = (
                    name,
                    *given,
                    *(None if c is None else c.tobytes() for c in content),
                )
                if key not in found:
                    body = step.function(name, given)
                    names = [
                        origins.get((node.name, one.name), one.name)
                        for one in body.nodes
                        if one.type != ARGUMENT
                    ]
                    found[key] = Cluster(step, name, given, content, [], names)
                found[key].calls.append(node.name)
    return list(found.values())


def _contents(
    called: Called, nodes: Iterable[Any]
) -> Iterator[np.ndarray | None]:
    """Yields the content of each argument of clusters, as far as it is known."""
    function = called.function
    tensors = [function.tensor(one) for node in nodes for one in node.inputs]
    known = _Content()
    names = [known.add(tensor) for tensor in tensors]
    arrays = known.arrays()
    for name in names:
        yield arrays.get(name or "")


class _Content:
    """Finds integers that the shapes of a graph alone tell."""

    def __init__(self) -> None:
        self._definition = tf.compat.v1.GraphDef()
        self._known: dict[str, bool] = {}
        self._wanted: dict[str, None] = {}

    def add(self, tensor: tf.Tensor) -> str | None:
        """Returns the name of a tensor if its content is known, or `None`."""
        count = tensor.shape.num_elements()
        is_small = count is not None and count <= _MOST_CONTENT
        if not (tensor.dtype.is_integer or tensor.dtype.is_bool):
            return None
        if not is_small or not self._is_known(tensor):
            return None
        self._wanted[tensor.name] = None
        return tensor.name

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the contents by the tensors' names."""
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(self._definition, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            names = list(self._wanted)
            return dict(zip(names, session.run(names)))

    def _is_known(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor follows from shapes; adds its operations if so."""
        waiting = [tensor.op]
        while waiting:
            operation = waiting[-1]
            if operation.name in self._known:
                waiting.pop()
            elif operation.type in _SHAPES:
                self._known[operation.name] = self._add_shapes(operation)
            elif _has_other_content(operation):
                self._known[operation.name] = False
            else:
                sources = [one.op for one in operation.inputs]
                unseen = [s for s in sources if s.name not in self._known]
                waiting += unseen
                if not unseen:
                    is_known = all(self._known[s.name] for s in sources)
                    self._known[operation.name] = is_known
                    if is_known:
                        self._add(operation)
        return self._known[tensor.op.name]

    def _add(self, operation: tf.Operation) -> None:
        copy = self._definition.node.add()
        copy.CopyFrom(operation.node_def)
        del copy.input[:]
        copy.input.extend(one.name for one in operation.inputs)

    def _add_shapes(self, operation: tf.Operation) -> bool:
        """Adds known shapes, sizes or ranks in place of their operation."""
        arrays = []
        for one, output in zip(operation.inputs, operation.outputs):
            shape: Any = one.shape
            if operation.type == "Rank" and shape.rank is not None:
                shape = shape.rank
            elif not shape.is_fully_defined():
                return False
            elif operation.type == "Size":
                shape = shape.num_elements()
            arrays.append(np.array(shape, output.dtype.as_numpy_dtype))
        node = self._definition.node.add(name=operation.name, op="IdentityN")
        types = tuple(one.dtype for one in operation.outputs)
        set_attributes(node, {"T": types})
        for number, array in enumerate(arrays):
            name = f"{operation.name}/known_{number}"
            constant = self._definition.node.add(name=name, op="Const")
            value = tf.make_tensor_proto(array)
            set_attributes(constant, {"dtype": types[number], "value": value})
            node.input.append(name)
        return True


def _has_other_content(operation: tf.Operation) -> bool:
    """Whether an operation's outputs depend on more than on its inputs."""
    return (
        operation.op_def.is_stateful
        or operation.type == "Placeholder"
        or any(
            value.HasField("func") for value in operation.node_def.attr.values()
        )
    )


# StableHLO -------------------------------------------------------------------


def lowered(cluster: Cluster) -> str:
    """Returns a cluster as StableHLO.

    Raises:
        tf.errors.OpError: If TensorFlow's bridge refuses it.
    """
    library = cluster.step.library
    function = library[cluster.function]
    signature = function.signature
    types = [tf.as_dtype(one.type) for one in signature.output_arg]
    # It is in TensorFlow's library as long as this object exists.
    written = Written(
        [*_called_by(function, library), function],
        [],
        types,
        [None] * len(types),
        [],
        True,
        cluster.step.lowered,
    )

    def call(*tensors: tf.Tensor) -> list[tf.Tensor]:
        rest = iter(tensors)
        return written(
            [
                next(rest) if content is None else tf.constant(content)
                for content in cluster.content
            ]
        )

    specs = [
        tf.TensorSpec(static.shape, static.dtype)
        for static, content in zip(cluster.given, cluster.content)
        if content is None
    ]
    compiled = tf.function(call, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*specs)(
        stage="stablehlo", platform_name="GPU"
    )


def _called_by(function: Any, library: Mapping[str, Any]) -> list[Any]:
    """Returns the functions that a function calls, directly or not."""
    found: dict[str, Any] = {}
    waiting = [function]
    while waiting:
        for node in waiting.pop().node_def:
            for value in node.attr.values():
                for called in functions_in(value):
                    if called.name in library and called.name not in found:
                        found[called.name] = library[called.name]
                        waiting.append(found[called.name])
    return list(found.values())
