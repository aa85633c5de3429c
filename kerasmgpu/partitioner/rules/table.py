"""What a rule is: what each operation does to sharded rows.

Most operations are described by their *axes*, as in an einsum: axes of inputs
and outputs that correspond have the same label. A sharded axis whose label the
outputs have stays sharded; one that is summed away leaves a partial sum.
Others have a function that says what they want and what they give. Operations
that are not declared, or whose rule says `None`, run on whole values.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from kerasmgpu.partitioner.cost import CostModel
from kerasmgpu.partitioner.kinds import (
    PARTIAL,
    REPLICATED,
    LocalSizes,
    Partial,
    Sharded,
    is_local,
)
from kerasmgpu.partitioner.records import record

DEFAULT_COST = CostModel()
"""Of a batch of which nothing is known."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """Which axes of an operation's inputs and outputs correspond.

    Attributes:
        inputs: For each input a tuple with a label per axis: any value that can
            be compared, `None` for an axis that must be whole. `None` instead
            of a tuple for an input that must be whole.
        outputs: The same for the outputs.
        sums: Labels of axes that are summed over.
        by: How parts over those axes are put together: `"sum"`, `"max"` or
            `"min"`.
        linear: Numbers of inputs in which the operation is linear.
        additive: Whether it adds its inputs.
        stretches: Whether an axis of size 1 is stretched to that of another
            input; else axes with one label have one size.
        sizes: `{input: output}`: the input is the shape of the output.
        multiples: Number of the input that says how often an axis of the first
            output is repeated, which no input has; or `None`.
        in_blocks: Whether several blocks of all rows will do as well.
        emit: See `Plan`.
    """

    inputs: tuple
    outputs: tuple
    sums: tuple = ()
    by: str = "sum"
    linear: tuple = ()
    additive: bool = False
    stretches: bool = False
    sizes: dict = dataclasses.field(default_factory=dict)
    multiples: int | None = None
    in_blocks: bool = True
    emit: Callable | None = None

    def sizes_of_labels(self, node):
        """Yields each label of the inputs' axes, with the size of the axis."""
        for labels, tensor in zip(self.inputs, node.inputs):
            for label, size in zip(labels or (), tensor.shape or ()):
                if label is not None:
                    yield label, size


@dataclasses.dataclass(frozen=True)
class Plan:
    """How one operation is run on the replicas.

    Attributes:
        wants: Kind that each input is wanted in.
        gives: Kind of each output.
        emit: Function `(build, node, plan, place, inputs)` that writes the operation
            for one replica and returns its outputs, where that is more than
            the same operation on other inputs.
        rule: Whether a rule applied; else the inputs are whole.
        details: What a rule keeps for building.
        dealt: `{output: kind}`: outputs that every replica has whole, and of
            which it may as well take its own part.
    """

    wants: tuple
    gives: tuple
    emit: Callable | None = None
    rule: bool = True
    details: Any = None
    dealt: dict = dataclasses.field(default_factory=dict)

    @property
    def is_local(self):
        """Whether replicas have something of their own to do, or all the same."""
        return any(map(is_local, (*self.wants, *self.gives)))


def shape_of_input(number: int) -> Callable:
    """The shape rule of operations to which an input says their shape."""

    def given(node):
        value = node.inputs[number].value
        return [value] if isinstance(value, tuple) else None

    return given


def axes_of(node):
    """A node's `Axes`, or `None` where none describe it."""
    axes = record(node.type).axes
    return None if axes is None else axes(node)


def all_but(tensor, axis):
    """Labels of a tensor's axes, of which one must be whole.

    `None` where its rank, or the axis, isn't known.
    """
    if tensor.shape is None or not isinstance(axis, int):
        return None
    axis %= tensor.rank
    return tuple(None if n == axis else n for n in range(tensor.rank))


def whole(node):
    """The plan of an operation without a rule: all is whole."""
    return dataclasses.replace(replicated(node), rule=False)


def replicated(node):
    """The plan of an operation on replicated values."""
    return Plan(
        (REPLICATED,) * len(node.inputs), (REPLICATED,) * len(node.outputs)
    )


def by_axes(node, axes, kinds, free=frozenset(), cost=DEFAULT_COST):
    """Plans an operation that is described by its axes.

    Args:
        node: The node.
        axes: Its `Axes`.
        kinds: Kinds of its inputs.
        free: Inputs that can be had whole without communication.
        cost: The `cost.CostModel` of a batch.

    Returns:
        A `Plan`, or `None` where the rule doesn't apply.
    """
    best, least = None, None
    for number, (labels, kind) in enumerate(zip(axes.inputs, kinds)):
        if not isinstance(kind, Sharded) or labels is None:
            continue
        label = labels[kind.axis]
        if label is None or not _may_shard(axes, label):
            continue
        if axes.stretches and _may_be_stretched(node, axes, label, kind):
            continue
        wants = tuple(_wanted(other, label, kind) for other in axes.inputs)
        is_sum = label in axes.sums
        gives = (Partial(axes.by),) * len(axes.outputs) if is_sum else ()
        sent = cost.sent(node, kinds, wants, gives, free)
        rank = (sent, is_sum, number)
        if least is None or rank < least:
            best, least = (label, kind, wants), rank
    if best is None:
        return _linear(node, axes, kinds)
    label, kind, wants = best
    if _whole_is_better(node, wants, kinds, free):
        return replicated(node)
    return by_label(node, axes, label, kind)


def by_label(node, axes, label, kind):
    """The plan in which the axes with one label are sharded.

    Args:
        node: The node.
        axes: Its `Axes`.
        label: One that its axes have.
        kind: `Sharded`; its axis doesn't matter.

    Returns:
        A `Plan`, or `None` where that can't be.
    """
    if kind.outer != 1 and not axes.in_blocks:
        return None
    wants = tuple(_wanted(labels, label, kind) for labels in axes.inputs)
    if label in axes.sums:
        gives = (Partial(axes.by),) * len(axes.outputs)
    else:
        gives = tuple(kind.at(labels.index(label)) for labels in axes.outputs)
        for input, output in axes.sizes.items():
            wants = _replaced(wants, input, LocalSizes(gives[output]))
        if axes.multiples is not None and not any(
            labels is not None and label in labels for labels in axes.inputs
        ):
            wants = _replaced(wants, axes.multiples, LocalSizes(gives[0]))
    return Plan(wants, gives, axes.emit)


def _may_shard(axes, label):
    """Whether a label is summed over, or all outputs have it."""
    if label in axes.sums:
        return True
    return all(
        labels is not None and label in labels for labels in axes.outputs
    )


def _may_be_stretched(node, axes, label, kind):
    """Whether rows meet an axis of another size: a batch of one row may.

    Where their number is known, what turns out to be one row is seen when it is
    dealt out; but for rows in several blocks.
    """
    if isinstance(kind.size, int) and kind.outer == 1:
        return False
    sides = zip((*axes.inputs, *axes.outputs), (*node.inputs, *node.outputs))
    return any(
        tensor.shape[labels.index(label)] not in (1, kind.size)
        for labels, tensor in sides
        if labels is not None and label in labels and tensor.shape is not None
    )


def _wanted(labels, label, kind):
    """The kind of an input with these labels, when one label is sharded."""
    if labels is None or label not in labels:
        return REPLICATED
    return kind.at(labels.index(label))


def _whole_is_better(node, wants, kinds, free):
    """Whether rows that nobody has to gather meet a value that is whole."""
    if any(
        isinstance(kind, Sharded) and tensor not in free
        for tensor, kind in zip(node.inputs, kinds)
    ):
        return False
    return any(
        kind == REPLICATED and isinstance(want, Sharded)
        for want, kind in zip(wants, kinds)
    )


def _linear(node, axes, kinds):
    """Keeps partial sums partial where the operation is linear in them."""
    if any(isinstance(kind, Sharded) for kind in kinds):
        return None
    partial = [number for number, kind in enumerate(kinds) if kind == PARTIAL]
    if not partial or any(
        isinstance(kind, Partial) and kind != PARTIAL for kind in kinds
    ):
        return None
    gives = (PARTIAL,) * len(node.outputs)
    out = node.outputs[0].shape
    if axes.additive and out is not None:
        if all(tensor.shape == out for tensor in node.inputs):
            return Plan((PARTIAL,) * len(kinds), gives)
        return None
    if len(partial) == 1 and partial[0] in axes.linear:
        if _grows(node, partial[0]):
            return None
        return Plan(tuple(kinds), gives)
    return None


def _grows(node, number):
    """Whether what comes out has more elements than what goes in."""
    before = node.inputs[number].num_elements
    after = [tensor.num_elements for tensor in node.outputs]
    if before is None or None in after:
        return True
    if isinstance(before, int) and all(isinstance(n, int) for n in after):
        return sum(after) > before
    return sum(after) != before


def _replaced(items, index, item):
    return (*items[:index], item, *items[index + 1 :])
