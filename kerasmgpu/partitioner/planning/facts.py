"""Infers shapes, and values of small integer tensors, by symbol.

TensorFlow infers sizes that are numbers. Sizes that depend on the batch are
inferred here: an axis of unknown static size gets the size that its operation's
rule returns, or a new symbol.
"""

from typing import Any, TypeAlias

from kerasmgpu.partitioner.rules import table
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.elements import Elements
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.partitioner.step.sizes import Shape, Size, SizeLike, Value

Joins: TypeAlias = list[tuple[sizes.Symbol, sizes.Symbol]]
"""Pairs of symbols that must be equal when the graph runs."""

_MOST_PASSES = 20


def infer(graph: Graph, joins: Joins) -> None:
    """Sets `shape`, `value` and `element` of all tensors of a graph.

    Those of the graph's inputs must be set before.

    Args:
        joins: List to which pairs of symbols are added that must be equal when
            the graph runs: the rows of two inputs of one operation.
    """
    inference = Inference(graph, joins)
    for number in range(_MOST_PASSES + 1):
        inference.infer(graph)
        if not inference.needs_another_pass(is_last=number == _MOST_PASSES - 1):
            return


class Inference:
    """Infers facts of a graph and of the bodies of its loops and branches.

    Args:
        graph: The function's `Graph`. Sizes of its tensors aren't local to a
            body; see `lasting`.
        joins: See `infer`.
    """

    def __init__(self, graph: Graph, joins: Joins) -> None:
        self._joins = joins
        self._in_branch = 0
        self._elements: dict[Node, Elements] = {}
        self._outer = {tensor.node for tensor in graph.inputs}
        self._outer.update(graph.nodes)

    def infer(self, graph: Graph) -> None:
        """Runs one pass over a graph."""
        for node in graph.nodes:
            for tensor in node.outputs:
                tensor.shape, tensor.value = tensor.static, None
            known = record(node.type)
            if known.value is not None:
                _infer_values(node, known.value(node))
            if known.facts is not None:
                known.facts(node, self)
            axes = _join_rows(node, None if self._in_branch else self._joins)
            if any(t.shape is None or None in t.shape for t in node.outputs):
                _infer_shapes(node, axes)

    def infer_branch(self, graph: Graph) -> None:
        """Runs one pass over a branch's body.

        It might not run, so no rows are recorded as equal.
        """
        self._in_branch += 1
        self.infer(graph)
        self._in_branch -= 1

    def elements(self, node: Node) -> Elements:
        """Returns the facts about the elements of the list that a node makes.

        All calls for a node return the same object.
        """
        return self._elements.setdefault(node, Elements())

    def join_lengths(self, one: Value, other: Value) -> None:
        """Joins lengths of inputs that are equal, entry by entry.

        Other sizes, and what a branch asserts, stay as they are.
        """
        for a, b in zip(sizes.as_tuple(one), sizes.as_tuple(other)):
            are_lengths = sizes.is_length(a) and sizes.is_length(b)
            if are_lengths and not self._in_branch:
                _join(a, b, self._joins)

    def lasting(self, known: Any) -> Any:
        """Returns a shape or value with `None` for sizes local to a body.

        Such sizes depend on symbols of the body's tensors.
        """
        if isinstance(known, tuple):
            return tuple(map(self.lasting, known))
        return known if self._is_lasting(known) else None

    def _is_lasting(self, size: SizeLike | None) -> bool:
        if not isinstance(size, sizes.Size):
            return True
        return all(
            symbol.joined.source[0].node in self._outer
            for symbol in size.symbols
        )

    def needs_another_pass(self, is_last: bool) -> bool:
        """Updates assumptions about lists; returns whether to run a pass again.

        Args:
            is_last: Whether only one more pass is allowed: if the assumptions
                aren't settled, all are given up.
        """
        lists = [one for one in self._elements.values() if not one.is_joined]
        changed = not is_last and any([one.assume() for one in lists])
        if not changed:
            changed = any([one.give_up(wholly=is_last) for one in lists])
            if changed:
                for one in lists:
                    one.assume()
        for one in lists:
            one.clear()
        return changed


def _infer_values(node: Node, values: Any) -> None:
    if Trait.SEVERAL_VALUES not in node.traits:
        if len(node.outputs) == 1:
            _set_value(node.outputs[0], values)
    elif values is not None:
        for tensor, value in zip(node.outputs, values):
            _set_value(tensor, value)


def _set_value(tensor: Tensor, value: Value) -> None:
    if isinstance(value, tuple):
        value = tuple(
            entry if sizes.fits(entry, tensor.dtype) else None
            for entry in value
        )
    elif not sizes.fits(value, tensor.dtype):
        value = None
    if isinstance(value, tuple) and len(tensor.shape or (None,)) != 1:
        value = None  # A matrix or more: no entry is known.
    tensor.value = value
    # A tuple of unknown entries only doesn't tell the rank.
    if isinstance(value, tuple) and set(value) != {None}:
        tensor.shape = (len(value),)


def _join_rows(node: Node, joins: Joins | None) -> table.Axes | None:
    """Joins the symbols of rows, and of lengths, of axes with the same label.

    Joined pairs are added to `joins`; if it is `None`, nothing is joined. Also
    sets the inputs' sizes if the operation doesn't broadcast; see `_settle`.
    Returns the operation's axes; `None` if none describe it.
    """
    axes = table.axes_of(node)
    if axes is None:
        return None
    found, joined = {}, False
    for label, size in axes.sizes_of_labels(node):
        if joins is None or not isinstance(size, sizes.Size):
            continue
        other = found.setdefault(label, size)
        if other != size and _join(other, size, joins):
            joined = True
    if not axes.broadcasts:
        _settle(node, axes)
    return table.axes_of(node) if joined else axes


def _settle(node: Node, axes: table.Axes) -> None:
    """Sets the size of each input axis to the best known one of its label.

    It is for operations that don't broadcast.
    """
    known = {}
    for label, size in axes.sizes_of_labels(node):
        if size is not None:
            known.setdefault(label, []).append(size)
    for labels, tensor in zip(axes.inputs, node.inputs):
        if labels is not None and tensor.shape is not None:
            tensor.shape = tuple(
                min(known[label], key=_vagueness) if label in known else size
                for label, size in zip(labels, tensor.shape)
            )


def _vagueness(size: SizeLike) -> tuple[int, int]:
    """Returns a sort key: numbers first, then sizes in rows, then others.

    Among the latter two, sizes of older symbols come first.
    """
    if isinstance(size, int):
        return 0, 0
    latest = max(symbol.joined.id for symbol in size.symbols)
    return 1 if _has_rows(size) else 2, latest


def _join(one: Size, two: Size, joins: Joins) -> bool:
    """Joins symbols of two sizes if the sizes are otherwise equal.

    They are the only symbols of rows, or the only ones that differ, of lengths.
    Returns whether they were joined, and so added to `joins`.
    """
    sides = (one.symbols, two.symbols), (two.symbols, one.symbols)
    found = [[s for s in own - other if s.is_length] for own, other in sides]
    if found == [[], []]:
        found = [[s for s in own if s.is_rows] for own, _ in sides]
    if len(found[0]) != 1 or len(found[1]) != 1:
        return False
    (first,), (second,) = found
    factor = sizes.divide(one, sizes.of(first))
    if factor is None or factor != sizes.divide(two, sizes.of(second)):
        return False
    joins.append((first, second))
    first.join(second)
    return True


def _infer_shapes(node: Node, axes: table.Axes | None) -> None:
    shapes = None
    rule = record(node.type).shape
    if rule is not None:
        shapes = rule(node)
    elif axes is not None:
        shapes = _shapes_by_axes(node, axes)
    for number, tensor in enumerate(node.outputs):
        inferred = None if shapes is None else shapes[number]
        if tensor.shape is None:
            tensor.shape = inferred
        else:
            tensor.shape = sizes.filled_in(tensor.shape, inferred)
        tensor.complete()


def _shapes_by_axes(node: Node, axes: table.Axes) -> list[Shape]:
    known: dict[table.Label, SizeLike | None] = {}
    for label, size in axes.sizes_of_labels(node):
        if label not in known or size == known[label]:
            known[label] = size
        elif isinstance(size, int) and (size != 1 or not axes.broadcasts):
            known[label] = size
        elif not isinstance(known[label], int):
            if axes.broadcasts:
                known[label] = None  # Either may be 1.
            elif _has_rows(size):
                known[label] = size
    # A label that no input has: all inputs have size 1 or no such axis.
    missing = 1 if axes.broadcasts else None
    return [
        tuple(
            None if label is None else known.get(label, missing)
            for label in labels
        )
        for labels in axes.outputs
    ]


def _has_rows(size: SizeLike | None) -> bool:
    return isinstance(size, Size) and any(
        symbol.joined.is_rows for symbol in size.symbols
    )


def is_known(node: Node) -> bool:
    """Whether all outputs are known sizes, so that the node needn't run.

    Known sizes are written on demand. `False` for constants, which are written
    as they are. The node's control dependencies, such as checks of the same
    sizes, still run: operations with effects are never dead.
    """
    return (
        len(node.outputs) > 0
        and all(_is_known_value(tensor) for tensor in node.outputs)
        and node.type != "Const"
        and not node.bodies
        and not node.is_stateful
    )


def _is_known_value(tensor: Tensor) -> bool:
    value = tensor.value
    if value is None or not tensor.dtype.is_integer:
        return False
    return not isinstance(value, tuple) or None not in value
