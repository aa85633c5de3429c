"""Instructions: operations of the one-device step, and communication."""

import dataclasses
import enum
from typing import TYPE_CHECKING, ClassVar

import tensorflow as tf

from kerasmgpu.partitioner.rules.kinds import Kind, Placement, Rows, Sharded
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.sizes import SizeLike, Symbol

if TYPE_CHECKING:
    pass


Sent = tuple[Tensor, SizeLike | None, int]
"""A tensor that is sent, its elements where they are known, and bytes of each."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the one-device step in one placement.

    Attributes:
        tensor: The `graph.Tensor`.
        placement: A kind for each axis of the device mesh.
    """

    tensor: Tensor
    placement: Placement

    @property
    def kind(self) -> Kind:
        """The kind on the only axis of the mesh."""
        (kind,) = self.placement
        return kind


def value(tensor: Tensor, kind: Kind) -> Value:
    """The value of a tensor on a mesh of one axis."""
    return Value(tensor, (kind,))


class Runs(enum.Enum):
    """Where an operation runs."""

    ON_EACH = "on each replica"
    ONCE = "once"
    ON_COPIES = "on each replica's copies"
    """A cheap operation on whole values, where sending the result would take
    longer than computing it on each device."""
    ON_DEVICES = "on each device"
    """Of several micro-batches per device: not for each of these."""
    TOGETHER = "for all replicas together"
    """A loop or branch with communication inside."""


@dataclasses.dataclass(eq=False)
class Instruction:
    """What makes `outputs` from `inputs`."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    needs_all_replicas: ClassVar[bool] = False
    """Whether it can't run in a function of one replica: it communicates, or
    does something else on the first replica than on the others."""


@dataclasses.dataclass(eq=False)
class Operation(Instruction):
    """An operation of the one-device step.

    Attributes:
        node: The `graph.Node`.
        plan: Its `rules.table.Plan`.
        runs: Where it runs; `None` before `place_operations`.
        home: The place where it runs if it runs once.
        is_guarded: Whether it must not see a share without rows, and some
            share may have none.
    """

    node: Node
    plan: Plan
    runs: Runs | None = None
    home: int = 0
    is_guarded: bool = False


@dataclasses.dataclass(eq=False)
class Constant(Instruction):
    """A constant, which each device that needs it holds."""

    node: Node


@dataclasses.dataclass(eq=False)
class RequireEqualRows(Instruction):
    """A check of two inputs that are used row by row together.

    Attributes:
        rows: The symbols of their numbers of rows.
        message: Text of the error where these differ.
    """

    rows: tuple[Symbol, Symbol]
    message: str

    @property
    def passed(self) -> Rows | None:
        """Rows of which shares are compared with a whole; `None` for none."""
        kinds = [one.kind for one in self.inputs]
        shares = [kind for kind in kinds if isinstance(kind, Sharded)]
        return shares[0].rows if len(shares) == 1 else None


@dataclasses.dataclass(eq=False)
class KnownSizes(Instruction):
    """Sizes that are known by symbol, as a scalar or vector on the host."""


@dataclasses.dataclass(eq=False)
class LocalShape(Instruction):
    """A vector of sizes, with each replica's own size of the sharded axis.

    Its input is the whole's shape, where sizes of it are not known by symbol.

    Attributes:
        sizes: The sizes, where they are known. That of the sharded axis is -1
            if the reshape that takes the vector infers it, and else `None`.
    """

    sizes: tuple | None = None


@dataclasses.dataclass(eq=False)
class Alias(Instruction):
    """The same references under another kind: nothing is written."""


@dataclasses.dataclass(eq=False)
class Slice(Instruction):
    """Each replica's rows, cut out of a whole value.

    Attributes:
        may_be_one: Whether the axis may have one element for all rows instead.
    """

    may_be_one: bool = False


@dataclasses.dataclass(eq=False)
class FirstOnly(Instruction):
    """A whole value as a part of a sum: the others hold zeros."""

    needs_all_replicas: ClassVar[bool] = True


@dataclasses.dataclass(eq=False)
class Reshard(Instruction):
    """A tensor from one placement to another; `lower_reshards` says how."""


@dataclasses.dataclass(eq=False)
class Communication(Instruction):
    """What replicas, or workers, send each other."""

    needs_all_replicas: ClassVar[bool] = True
    name: ClassVar[str] = ""

    def sizes(self) -> "list[Sent]":
        """What is sent: each tensor, its elements, and bytes per element."""
        return [
            (one.tensor, one.tensor.num_elements, self.type_of(one).size)
            for one in self.inputs
        ]

    def type_of(self, one: Value) -> tf.DType:
        """The type in which an input is sent."""
        return one.tensor.dtype


def _summed_type(tensor: Tensor, widens: bool) -> tf.DType:
    """The type in which parts of a sum are added."""
    is_wide = widens and tensor.is_narrow
    return tf.float32 if is_wide else tensor.dtype


@dataclasses.dataclass(eq=False)
class AllReduce(Communication):
    """Whole values of parts, merged over the replicas in one reduction.

    Attributes:
        by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.
        widens: Whether parts of fewer than 32 bits are merged in float32; see
            `graph.Tensor.is_narrow`.
    """

    by: str
    widens: bool
    name: ClassVar[str] = "all_reduce"

    def type_of(self, one: Value) -> tf.DType:
        return _summed_type(one.tensor, self.widens and self.by == "sum")


@dataclasses.dataclass(eq=False)
class ReduceScatter(Communication):
    """Of sums of parts, the rows of each replica.

    Attributes:
        widens: See `AllReduce`.
        in_turns: Whether each micro-batch's parts are scattered in its turn,
            and added where they belong.
    """

    widens: bool
    in_turns: bool = False
    name: ClassVar[str] = "reduce_scatter.sum"

    def type_of(self, one: Value) -> tf.DType:
        return _summed_type(one.tensor, self.widens)


@dataclasses.dataclass(eq=False)
class AllGather(Communication):
    """All rows, in order, of each replica's own.

    Attributes:
        after: Instructions that must have run before: the consumers of weights
            that were gathered earlier; see `passes.order_gathers`.
        in_turns: Whether a weight is gathered in the turn of each micro-batch.
    """

    after: tuple[Instruction, ...] = ()
    in_turns: bool = False
    name: ClassVar[str] = "all_gather"


@dataclasses.dataclass(eq=False)
class Broadcast(Communication):
    """A whole value as the first worker has it.

    What its kernel made may differ between workers in the last bits, and
    variables must not be changed by such values.
    """

    name: ClassVar[str] = "broadcast"


@dataclasses.dataclass(eq=False)
class GatherCounts(Communication):
    """The numbers of rows of all replicas, of an input passed in shares.

    Attributes:
        num_replicas: Their number.
    """

    num_replicas: int
    name: ClassVar[str] = "gather_counts"

    def sizes(self) -> "list[Sent]":
        (one,) = self.inputs
        return [(one.tensor, self.num_replicas, tf.int32.size)]
