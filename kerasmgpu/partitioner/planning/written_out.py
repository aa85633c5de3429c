"""Writes softmaxes and cross-entropies out where their last axis is divided.

TensorFlow's operations take that axis whole. A maximum, a sum and elementwise
operations compute the same from parts: of each row a few numbers are all-reduced,
where all of its scores would be gathered. As on GPUs, narrow floats are computed
in 32 bits.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.planning import facts
from kerasmgpu.partitioner.rules.kinds import REPLICATED, Sharded
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.step.constraints import layout_attributes
from kerasmgpu.partitioner.step.definitions import set_attributes
from kerasmgpu.partitioner.step.graph import (
    MUST_COMPILE,
    Graph,
    Node,
    Tensor,
    new_node,
)
from kerasmgpu.partitioner.step.simplification import without_dead_nodes

IsDivided: TypeAlias = tuple[bool, ...]
"""For each planning axis, whether the last axis of an input is gathered along it."""

Gathering: TypeAlias = dict[Node, IsDivided]
"""Operations that can be written out, and gather the last axis of an input."""


def gathering(
    graph: Graph, planned: Sequence[Plans], but: Collection[Node]
) -> Gathering:
    """Returns the operations to write out, except some; those in bodies aren't.

    Args:
        planned: The `Plans` of the graph on each planning axis.
    """
    found = {
        node: tuple(_gathers(node, plans) for plans in planned)
        for node in graph.nodes
        if node.type in _WRITTEN and node not in but
    }
    return {node: axes for node, axes in found.items() if any(axes)}


def _gathers(node: Node, plans: Plans) -> bool:
    return any(
        isinstance(kind, Sharded)
        and kind.axis == len(tensor.shape) - 1
        and want == REPLICATED
        and tensor not in plans.free
        for tensor, kind, want in zip(
            node.inputs,
            map(plans.kinds.__getitem__, node.inputs),
            plans.nodes[node].wants,
        )
    )


def first_alike(found: Gathering) -> Gathering:
    """Returns the first operation, and those like it, as of other layers."""
    alike: dict[Any, Gathering] = {}
    for node, axes in found.items():
        key = node.type, node.inputs[0].shape, axes
        alike.setdefault(key, {})[node] = axes
    return next(iter(alike.values()))


def write_out(
    graph: Graph, found: Gathering, joins: facts.Joins
) -> Callable[[], None]:
    """Writes operations out; changes the graph, which must be planned again.

    Args:
        joins: See `facts.infer`.

    Returns:
        Function that undoes it.
    """
    before = graph.nodes
    controls = {node: node.controls for node in before}
    nodes: list[Node] = []
    last: dict[Node, Node] = {}
    for node in before:
        if node not in found:
            nodes.append(node)
            continue
        made = _Nodes(node)
        results = _WRITTEN[node.type](node, made, found[node])
        facts.infer(Graph(made.nodes, [], [], []), joins)
        for old, new in zip(node.outputs, results):
            old.node, old.index, new.node.outputs = new.node, 0, [old]
        last[node] = results[-1].node
        last[node].name = node.name  # By which it is recomputed.
        nodes += made.nodes
    for node in nodes:
        node.controls = [last.get(one, one) for one in node.controls]
    graph.nodes = nodes
    without_dead_nodes(graph)

    def undo() -> None:
        graph.nodes = before
        for node, its in controls.items():
            node.controls = its
        for node in found:
            for number, tensor in enumerate(node.outputs):
                tensor.node, tensor.index = node, number

    return undo


class _Nodes:
    """The nodes in place of another one, in order.

    Args:
        node: That node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.nodes: list[Node] = []

    def op(
        self,
        type: str,
        *inputs: Tensor,
        dtype: tf.DType | None = None,
        **attributes: Any,
    ) -> Tensor:
        """Adds a node; returns its output.

        Args:
            dtype: Type of the output. Default: that of the first input.
            **attributes: Default: `T`, the type of the first input.
        """
        of_first = inputs[0].dtype
        attributes = attributes or {"T": of_first}
        return self._add(type, inputs, dtype or of_first, attributes)

    def _add(
        self,
        type: str,
        inputs: Sequence[Tensor],
        dtype: tf.DType,
        attributes: Mapping[str, Any],
    ) -> Tensor:
        node = self._node
        made = new_node(type, f"{node.name}/{type}_{len(self.nodes)}")
        made.device, made.regions = node.device, node.regions
        made.inputs, made.controls = list(inputs), list(node.controls)
        set_attributes(made.definition, attributes)
        if MUST_COMPILE in node.definition.attr:
            set_attributes(made.definition, {MUST_COMPILE: True})
        made.outputs = [Tensor(made, 0, dtype)]
        self.nodes.append(made)
        return made.outputs[0]

    def constant(self, value: Any, dtype: tf.DType) -> Tensor:
        proto = tf.make_tensor_proto(value, dtype)
        attributes = {"value": proto, "dtype": dtype}
        made = self._add("Const", (), dtype, attributes)
        made.learn(np.shape(value))
        return made

    def cast(self, tensor: Tensor, dtype: tf.DType) -> Tensor:
        if tensor.dtype == dtype:
            return tensor
        return self.op(
            "Cast", tensor, dtype=dtype, SrcT=tensor.dtype, DstT=dtype
        )

    def wide(self, tensor: Tensor) -> Tensor:
        """Returns a tensor of at least 32 bits."""
        dtype = tf.float32 if tensor.is_narrow else tensor.dtype
        return self.cast(tensor, dtype)

    def reduced(self, type: str, tensor: Tensor, keeps: bool = True) -> Tensor:
        """Reduces the last axis."""
        axis = self.constant(-1, tf.int32)
        types = {"T": tensor.dtype, "Tidx": tf.int32}
        return self.op(type, tensor, axis, keep_dims=keeps, **types)

    def selected(self, where: Tensor, one: Tensor, other: float) -> Tensor:
        """Returns `one` where a condition holds, and a number elsewhere."""
        number = self.constant(other, one.dtype)
        return self.op(
            "SelectV2", where, one, number, dtype=one.dtype, T=one.dtype
        )

    def softmax(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits less their maximum, their exponentials, and the sum."""
        shifted = self.op("Sub", logits, self.reduced("Max", logits))
        powers = self.op("Exp", shifted)
        return shifted, powers, self.reduced("Sum", powers)


def _softmax(node: Node, made: _Nodes, _: IsDivided) -> list[Tensor]:
    (logits,) = node.inputs
    _shifted, powers, total = made.softmax(made.wide(logits))
    return [made.cast(made.op("RealDiv", powers, total), logits.dtype)]


def _log_softmax(node: Node, made: _Nodes, _: IsDivided) -> list[Tensor]:
    (logits,) = node.inputs
    shifted, _powers, total = made.softmax(made.wide(logits))
    logs = made.op("Sub", shifted, made.op("Log", total))
    return [made.cast(logs, logits.dtype)]


def _cross_entropy(node: Node, made: _Nodes, _: IsDivided) -> list[Tensor]:
    """Writes the loss of labels that are distributions, and its gradient."""
    logits, labels = map(made.wide, node.inputs)
    shifted, powers, total = made.softmax(logits)
    terms = made.op(
        "Mul", labels, made.op("Sub", made.op("Log", total), shifted)
    )
    loss = made.reduced("Sum", terms, keeps=False)
    gradient = made.op("Sub", made.op("RealDiv", powers, total), labels)
    return [made.cast(one, node.inputs[0].dtype) for one in (loss, gradient)]


def _sparse_cross_entropy(
    node: Node, made: _Nodes, is_divided: IsDivided
) -> list[Tensor]:
    """Writes the loss of labels that are numbers of classes, and its gradient.

    Labels that are no class give NaN, as on GPUs.
    """
    logits = made.wide(node.inputs[0])
    shifted, powers, total = made.softmax(logits)
    types = {"T": tf.int64}
    number, classes = _classes(node, made)
    axes = [0 if divided else None for divided in is_divided]
    classes = made.op("Identity", classes, **types, **layout_attributes(axes))
    last = made.constant(-1, tf.int32)
    label = made.cast(node.inputs[1], tf.int64)
    label = made.op("ExpandDims", label, last, Tdim=tf.int32, **types)
    least = made.constant(0, tf.int64)
    for test, bound in (("Less", number), ("GreaterEqual", least)):
        is_class = made.op(test, label, bound, dtype=tf.bool)
        total = made.selected(is_class, total, np.nan)
    is_label = made.op("Equal", label, classes, dtype=tf.bool)
    own = made.reduced("Sum", made.selected(is_label, shifted, 0))
    loss = made.op("Sub", made.op("Log", total), own)
    loss = made.op("Squeeze", loss, T=loss.dtype, squeeze_dims=[1])
    one_hot = made.cast(is_label, loss.dtype)
    gradient = made.op("Sub", made.op("RealDiv", powers, total), one_hot)
    return [made.cast(one, node.inputs[0].dtype) for one in (loss, gradient)]


def _classes(node: Node, made: _Nodes) -> tuple[Tensor, Tensor]:
    """Returns how many classes a cross-entropy has, and their numbers."""
    logits, dtype = node.inputs[0], tf.int64
    number = logits.shape[1]
    if isinstance(number, int):
        numbers = made.constant(np.arange(number), dtype)
        return made.constant(number, dtype), numbers
    shape = made.op(
        "Shape", logits, dtype=dtype, T=logits.dtype, out_type=dtype
    )
    axes = [made.constant(axis, tf.int32) for axis in (1, 0)]
    types = {"Tparams": dtype, "Tindices": tf.int32, "Taxis": tf.int32}
    size = made.op("GatherV2", shape, *axes, **types)
    start, step = (made.constant(one, dtype) for one in (0, 1))
    return size, made.op("Range", start, size, step, Tidx=dtype)


_WRITTEN: Mapping[str, Callable[[Node, _Nodes, IsDivided], list[Tensor]]] = {
    "LogSoftmax": _log_softmax,
    "Softmax": _softmax,
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
}
