"""Writes softmaxes, cross-entropies and cumulative sums out on a divided axis.

TensorFlow's operations take that axis whole. A maximum, a sum and elementwise
operations compute the same from parts: of each row a few numbers are all-reduced,
where all of its scores would be gathered. As on GPUs, narrow floats are computed
in 32 bits. Of a cumulative sum, each device's total is gathered.
"""

import math
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

Parts: TypeAlias = tuple[int, ...]
"""For each planning axis, over how many devices the axis is gathered; 0 if not."""

Gathering: TypeAlias = dict[Node, Parts]
"""Operations that can be written out, and gather an axis of an input."""


def gathering(
    graph: Graph,
    planned: Sequence[Plans],
    numbers: Sequence[int],
    but: Collection[Node],
) -> Gathering:
    """Returns the operations to write out, except some; those in bodies aren't.

    Args:
        planned: The `Plans` of the graph on each planning axis.
        numbers: Numbers of devices along each planning axis.
    """
    found = {
        node: tuple(
            number if _gathers(node, plans) else 0
            for plans, number in zip(planned, numbers)
        )
        for node in graph.nodes
        if node.type in _WRITTEN and node not in but
    }
    return {
        node: parts
        for node, parts in found.items()
        if any(parts)
        and (node.type != "Cumsum" or _has_equal_blocks(node, parts))
    }


def _gathers(node: Node, plans: Plans) -> bool:
    axis = _axis_of(node)
    return any(
        isinstance(kind, Sharded)
        and isinstance(axis, int)
        and kind.axis == axis % len(tensor.shape)
        and want == REPLICATED
        and tensor not in plans.free
        for tensor, kind, want in zip(
            node.inputs,
            map(plans.kinds.__getitem__, node.inputs),
            plans.nodes[node].wants,
        )
    )


def _axis_of(node: Node) -> Any:
    """Returns the axis that an operation takes whole: an integer, if known."""
    return node.inputs[1].value if node.type == "Cumsum" else -1


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


def _softmax(node: Node, made: _Nodes, _: Parts) -> list[Tensor]:
    (logits,) = node.inputs
    _shifted, powers, total = made.softmax(made.wide(logits))
    return [made.cast(made.op("RealDiv", powers, total), logits.dtype)]


def _log_softmax(node: Node, made: _Nodes, _: Parts) -> list[Tensor]:
    (logits,) = node.inputs
    shifted, _powers, total = made.softmax(made.wide(logits))
    logs = made.op("Sub", shifted, made.op("Log", total))
    return [made.cast(logs, logits.dtype)]


def _cross_entropy(node: Node, made: _Nodes, _: Parts) -> list[Tensor]:
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
    node: Node, made: _Nodes, parts: Parts
) -> list[Tensor]:
    """Writes the loss of labels that are numbers of classes, and its gradient.

    Labels that are no class give NaN, as on GPUs.
    """
    logits = made.wide(node.inputs[0])
    shifted, powers, total = made.softmax(logits)
    types = {"T": tf.int64}
    number, classes = _classes(node, made)
    axes = [0 if divided else None for divided in parts]
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


def _has_equal_blocks(node: Node, parts: Parts) -> bool:
    """Whether a cumulative sum's axis divides into blocks, one for each device."""
    shape, number = node.inputs[0].shape, math.prod(filter(None, parts))
    size = shape[node.inputs[1].value % len(shape)]
    unknown = sum(not isinstance(one, int) for one in shape)
    return (
        isinstance(size, int)
        and size > number
        and size % number == 0
        and unknown < 2
    )


def _cumsum(node: Node, made: _Nodes, parts: Parts) -> list[Tensor]:
    """Writes sums in each device's block, and of the blocks before it."""
    values, dtype = node.inputs[0], node.inputs[0].dtype
    shape = [one if isinstance(one, int) else -1 for one in values.shape]
    axis = node.inputs[1].value % len(shape)
    number = math.prod(filter(None, parts))
    blocks = [*shape[:axis], number, shape[axis] // number, *shape[axis + 1 :]]

    def reshaped(values: Tensor, shape: Sequence[int]) -> Tensor:
        vector = made.constant(shape, tf.int32)
        return made.op("Reshape", values, vector, T=dtype, Tshape=tf.int32)

    def along(values: Tensor, axis: int, exclusive: bool) -> Tensor:
        return made.op(
            "Cumsum",
            values,
            made.constant(axis, tf.int32),
            T=dtype,
            Tidx=tf.int32,
            exclusive=exclusive,
            reverse=node.attr("reverse"),
        )

    split = reshaped(values, blocks)
    inside = along(split, axis + 1, node.attr("exclusive"))
    inner = made.constant(axis + 1, tf.int32)
    types = {"T": dtype, "Tidx": tf.int32}
    totals = made.op("Sum", split, inner, keep_dims=True, **types)
    whole = made.op("AddV2", inside, along(totals, axis, exclusive=True))
    return [reshaped(whole, shape)]


_WRITTEN: Mapping[str, Callable[[Node, _Nodes, Parts], list[Tensor]]] = {
    "Cumsum": _cumsum,
    "LogSoftmax": _log_softmax,
    "Softmax": _softmax,
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SparseSoftmaxCrossEntropyWithLogits": _sparse_cross_entropy,
}
