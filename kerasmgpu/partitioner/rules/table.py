"""Rules: how each operation is sharded.

Most operations are described by their *axes*, as in an einsum: axes of inputs
and outputs that correspond have the same label (`notation` reads them from
text). A sharded axis whose label the outputs have stays sharded; a sharded axis
that is summed over gives a partial sum.
Other operations have a function from the kinds of their inputs to a `Plan`.
Operations without a rule, or whose rule returns `None`, run on whole values.
"""

import dataclasses
import enum
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import Any, TypeVar

from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    LocalSizes,
    Partial,
    Shape,
    Sharded,
    is_exchanged,
    is_local,
)
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.partitioner.step.sizes import SizeLike

T = TypeVar("T")

Label = Hashable
"""Name of an axis. Axes with the same name correspond; `None` is no name."""

Labels = tuple[Label, ...]
"""A label for each axis of a tensor; `None` for an axis that must be whole."""


class Emit(enum.Enum):
    """Ways to write an operation other than as a copy of it.

    `lowering/operations.py` has a function for each.
    """

    IDENTITY = enum.auto()
    """An identity: checks were made on the whole value."""
    DRAW_ROWS = enum.auto()
    """The replica's rows of a random draw."""
    LOCAL_MEAN = enum.auto()
    """The mean of the replica's rows, times its fraction of all rows."""
    FIRST_INPUT_FROM_OWN_ROW = enum.auto()
    """Row numbers in the first input count from the replica's first row."""
    SECOND_INPUT_FROM_OWN_ROW = enum.auto()
    """Row numbers in the second input count from the replica's first row."""
    OWN_SEGMENTS = enum.auto()
    """As many segments as the replica has rows, numbered from its first row."""
    WHOLE_SHAPE = enum.auto()
    """The shape of the whole variable instead of that of the replica's part."""
    LOOK_UP_OWN = enum.auto()
    """Rows of a table that the replica owns, and zeros for all others."""
    UPDATE_OWN = enum.auto()
    """From whole updates, those of rows that the replica owns."""
    UPDATE_OWNED = enum.auto()
    """Updates that were sent to the replica because it owns their rows."""
    SUM_OWN = enum.auto()
    """Gradients that were sent to the replica, summed by row that it owns."""
    WINDOWS = enum.auto()
    """The part that computes the replica's share (`window_ranges.Part`), with its
    padding as an attribute. The next ones are told it by other means."""
    WINDOWS_PADDED = enum.auto()
    """By an input of paddings, or crops."""
    WINDOWS_CUT = enum.auto()
    """By an input of where a slice begins."""
    WINDOWS_BY_STEPS = enum.auto()
    """By inputs of where a slice begins and ends, and masks."""


ON_WINDOWS = frozenset(
    {
        Emit.WINDOWS,
        Emit.WINDOWS_PADDED,
        Emit.WINDOWS_CUT,
        Emit.WINDOWS_BY_STEPS,
    }
)
"""Ways to write the part of an operation on windows along an axis."""


DEFAULT_COST = CostModel()
"""The cost model of a batch of unknown sizes."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """Which axes of an operation's inputs and outputs correspond.

    Attributes:
        inputs: `Labels` of each input; `None` for an input that must be whole.
        outputs: `Labels` of each output. A label can be sharded only if all
            outputs have it, or if it is in `sums`. Axes with the same label
            have the same size.
        sums: Labels of axes that are summed over.
        by: Reduction over those axes: `"sum"`, `"max"`, `"min"` ….
        linear: Numbers of inputs in which it is linear: if one of them is a
            partial sum, and all other inputs are whole, the outputs are partial
            sums, too.
        additive: Whether it adds its inputs: partial sums are added part by
            part.
        broadcasts: Whether an axis of size 1 is broadcast to that of another
            input.
        sizes: `{input: output}`: the input's value is the output's shape.
        multiples: Number of the input whose value repeats each axis of the
            first output, as in `tf.tile`; or `None`.
        in_blocks: Whether an axis can also be sharded if it has several blocks
            of all rows (`Sharded.outer`).
        emit: See `Plan`.
    """

    inputs: tuple[Labels | None, ...]
    outputs: tuple[Labels, ...]
    sums: Labels = ()
    by: str = "sum"
    linear: tuple[int, ...] = ()
    additive: bool = False
    broadcasts: bool = False
    sizes: Mapping[int, int] = dataclasses.field(default_factory=dict)
    multiples: int | None = None
    in_blocks: bool = True
    emit: Emit | None = None

    def sizes_of_labels(self, node: Node) -> Iterator[tuple[Label, SizeLike]]:
        """Yields each label of the inputs' axes, with the size of the axis.

        The size is `None` if it is unknown.
        """
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
        emit: How the operation is written for one replica; `None` to copy it
            with its local inputs.
        rule: Whether a rule applied; otherwise the inputs are whole.
        details: The `Plans` of each of the operation's bodies; `None` without
            bodies.
        sliced: `{output: kind}`: replicated outputs of which each replica
            slices its shard.
    """

    wants: tuple[Kind, ...]
    gives: tuple[Kind, ...]
    emit: Emit | None = None
    rule: bool = True
    details: Any = None
    sliced: Mapping[int, Sharded] = dataclasses.field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether replicas hold different inputs or outputs."""
        return any(map(is_local, (*self.wants, *self.gives)))


class Plans:
    """How each node of a graph is run.

    Attributes:
        kinds: The kind of each tensor, as its consumers see it.
        nodes: The `Plan` of each node.
        free: Tensors whose whole value can be computed without communication.
        stored: For tensors that are sharded, and that cheap operations compute
            from sharded variables only: what is read from these variables.
            Replicas gather what has fewer bytes, the tensor or what is read.
    """

    def __init__(self) -> None:
        self.kinds: dict[Tensor, Kind] = {}
        self.nodes: dict[Node, Plan] = {}
        self.free: set[Tensor] = set()
        self.stored: dict[Tensor, tuple[Tensor, ...]] = {}

    def is_restored(self, tensor: Tensor, want: Kind) -> bool:
        """Whether an input is computed anew with an operation's whole output.

        Others are whole anyway, as the operation wants them so.
        """
        return tensor in self.stored and isinstance(want, Sharded)


def shape_of_input(number: int) -> Callable[[Node], list[Shape] | None]:
    """Makes a shape rule: the only output's shape is the value of an input.

    The rule returns `None` if the value is unknown.
    """

    def given(node: Node) -> list[Shape] | None:
        value = node.inputs[number].value
        return [value] if isinstance(value, tuple) else None

    return given


def axes_of(node: Node) -> Axes | None:
    """Returns a node's `Axes`; `None` if none describe it."""
    axes = record(node.type).axes
    return None if axes is None else axes(node)


def all_but(tensor: Tensor, axis: object) -> Labels | None:
    """Labels a tensor's axes, all but one, which must be whole.

    Returns `None` if the tensor's rank, or the axis, is unknown.
    """
    rank = tensor.rank
    if rank is None or not isinstance(axis, int):
        return None
    return tuple(None if n == axis % rank else n for n in range(rank))


def whole(node: Node) -> Plan:
    """Plans an operation without a rule: it runs on replicated values."""
    return dataclasses.replace(replicated(node), rule=False)


def replicated(node: Node) -> Plan:
    """Plans an operation on replicated values."""
    return Plan(
        (REPLICATED,) * len(node.inputs), (REPLICATED,) * len(node.outputs)
    )


def by_axes(
    node: Node,
    axes: Axes,
    kinds: Sequence[Kind],
    free: Collection[Tensor] = frozenset(),
    cost: CostModel = DEFAULT_COST,
    target: Sharded | None = None,
    stored: Mapping[Tensor, Collection[Tensor]] = MappingProxyType({}),
    gathered_later: Callable[[Tensor, int], bool] = lambda *_: False,
) -> Plan | None:
    """Plans an operation that is described by its axes.

    Of the axes by which inputs are sharded, and those of `target`, it takes the
    one for which the fewest bytes are sent.

    Args:
        free: Inputs whose whole value needs no communication.
        target: The kind that the first output is needed in, if it goes into a
            sharded variable; otherwise `None`.
        stored: See `Plans`.
        gathered_later: Function that tells whether an operation that follows
            takes an axis of an output whole.

    Returns:
        A `Plan`, or `None` where the rule doesn't apply.
    """
    best, least = None, None
    sides = [*zip(axes.inputs, kinds)]
    if target is not None and any(isinstance(k, Sharded) for k in kinds):
        sides += zip(axes.outputs, [target])
    for number, (labels, kind) in enumerate(sides):
        if not isinstance(kind, Sharded) or labels is None:
            continue
        label = labels[kind.axis]
        if label is None or not _may_shard(axes, label):
            continue
        if axes.broadcasts and _may_be_broadcast(node, axes, label, kind):
            continue
        wants = tuple(_wanted(other, label, kind) for other in axes.inputs)
        is_sum = label in axes.sums
        gives: tuple[Kind, ...] = (Partial(axes.by),) * len(axes.outputs)
        if not is_sum:
            gives = tuple(
                kind.at(labels.index(label)) for labels in axes.outputs
            )
        sent = cost.sent(node, kinds, wants, gives, free, target, stored)
        # Of products that send equally much, as of queries and keys.
        is_gathered = (
            Trait.PRODUCT in node.traits
            and not is_sum
            and gathered_later(node.outputs[0], axes.outputs[0].index(label))
        )
        # A sum that is scattered holds less than an all-to-all of its terms.
        is_moved = any(map(is_exchanged, kinds, wants))
        rank = (sent, is_moved, is_sum, is_gathered, number)
        if least is None or rank < least:
            best, least = (label, kind, wants), rank
    if best is None:
        return _linear(node, axes, kinds)
    label, kind, wants = best
    if _whole_is_better(node, wants, kinds, free):
        return replicated(node)
    return by_label(node, axes, label, kind)


def by_label(
    node: Node, axes: Axes, label: Label, kind: Sharded
) -> Plan | None:
    """Plans an operation whose axes with a given label are sharded.

    Args:
        kind: How these axes are sharded; its `axis` is ignored.

    Returns:
        A `Plan`; `None` if the rows come in several blocks, and the axes don't
        allow that.
    """
    if kind.outer != 1 and not axes.in_blocks:
        return None
    wants = tuple(_wanted(labels, label, kind) for labels in axes.inputs)
    if label in axes.sums:
        return Plan(wants, (Partial(axes.by),) * len(axes.outputs), axes.emit)
    gives = tuple(kind.at(labels.index(label)) for labels in axes.outputs)
    for input, output in axes.sizes.items():
        wants = _replaced(wants, input, LocalSizes(gives[output]))
    if axes.multiples is not None and not any(
        labels is not None and label in labels for labels in axes.inputs
    ):
        wants = _replaced(wants, axes.multiples, LocalSizes(gives[0]))
    return Plan(wants, gives, axes.emit)


def _may_shard(axes: Axes, label: Label) -> bool:
    """Whether a label can be sharded: summed over, or in all outputs."""
    if label in axes.sums:
        return True
    return all(
        labels is not None and label in labels for labels in axes.outputs
    )


def _may_be_broadcast(
    node: Node, axes: Axes, label: Label, kind: Sharded
) -> bool:
    """Whether the sharded axis can turn out to be one row that is broadcast.

    It can if an axis with the same label has neither the sharded axis's size nor
    size 1. A sharded axis of known size and one block of rows can't: a batch of
    one row was detected when it was sharded.
    """
    if isinstance(kind.size, int) and kind.outer == 1:
        return False
    sides = zip((*axes.inputs, *axes.outputs), (*node.inputs, *node.outputs))
    return any(
        tensor.shape[labels.index(label)] not in (1, kind.size)
        for labels, tensor in sides
        if labels is not None and label in labels and tensor.shape is not None
    )


def _wanted(labels: Labels | None, label: Label, kind: Sharded) -> Kind:
    """Returns the kind an input is wanted in when `label` is sharded."""
    if labels is None or label not in labels:
        return REPLICATED
    return kind.at(labels.index(label))


def _whole_is_better(
    node: Node,
    wants: Sequence[Kind],
    kinds: Sequence[Kind],
    free: Collection[Tensor],
) -> bool:
    """Whether an operation on whole values needs less communication.

    It does if all of its sharded inputs are free, and it also has a replicated
    input, which would have to be sharded. Not for what the program lays out, such
    as an input's tokens, to which a whole table of positions is added.
    """
    if any(
        isinstance(kind, Sharded)
        and (tensor not in free or kind.rows.are_of_variable)
        for tensor, kind in zip(node.inputs, kinds)
    ):
        return False
    return any(
        kind == REPLICATED and isinstance(want, Sharded)
        for want, kind in zip(wants, kinds)
    )


def _linear(node: Node, axes: Axes, kinds: Sequence[Kind]) -> Plan | None:
    """Plans partial outputs of partial inputs that the operation is linear in.

    Returns `None` where the sum must be taken first, and for other kinds.
    """
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


def _grows(node: Node, number: int) -> bool:
    """Whether the outputs have, or could have, more elements than an input."""
    before = node.inputs[number].num_elements
    after = sizes.sum_of(tensor.num_elements for tensor in node.outputs)
    if before is None or after is None:
        return True
    if isinstance(before, int) and isinstance(after, int):
        return after > before
    return after != before


def _replaced(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])
