"""Instructions: operations of the one-device step, and communication."""

import dataclasses
import enum
import math
from fractions import Fraction
from typing import ClassVar, cast

import tensorflow as tf

from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import (
    Kind,
    MeshAxes,
    PartlySummed,
    Placement,
    Rows,
    Sharded,
    WithHalo,
    is_local,
    is_of_batch,
)
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.rules.window_ranges import moved
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.sizes import SizeLike, Symbol

Sent = tuple[Tensor, SizeLike | None, Fraction]
"""A sent tensor, its number of elements (`None`: unknown), bytes per element.

Where the tensor is divided along other mesh axes, these are the bytes of the
part that each replica has, per element of the whole tensor."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor of the one-device step in one placement.

    Attributes:
        tensor: The `graph.Tensor`.
        placement: A kind for each planning axis of the device mesh.
    """

    tensor: Tensor
    placement: Placement

    def __hash__(self) -> int:
        return hash(self.tensor)  # Which has few placements.

    @property
    def kind(self) -> Kind:
        """The kind on the only planning axis of the mesh."""
        (kind,) = self.placement
        return kind

    @property
    def sharded(self) -> Sharded:
        """The kind of a value, which must be sharded."""
        return cast(Sharded, self.kind)

    @property
    def is_local(self) -> bool:
        """Whether replicas hold different values."""
        return any(map(is_local, self.placement))

    def has(self, *kinds: type) -> bool:
        """Whether the kind on some axis of the mesh is of one of these types."""
        return any(isinstance(kind, kinds) for kind in self.placement)

    def moved(self, axis: int, kind: Kind) -> "Value":
        """Returns the value with another kind on one axis of the mesh."""
        before, behind = self.placement[:axis], self.placement[axis + 1 :]
        return Value(self.tensor, (*before, kind, *behind))


def value(tensor: Tensor, kind: Kind, num_axes: int = 1) -> Value:
    """Returns the `Value` of a tensor in one kind on all axes of a mesh."""
    return Value(tensor, (kind,) * num_axes)


class Runs(enum.Enum):
    """Where an operation runs."""

    ON_EACH = "on each replica"
    ONCE = "once"
    ON_COPIES = "on each replica's copies"
    """On every replica, on its copy of whole values: cheaper than computing
    once and sending."""
    ON_DEVICES = "on each device"
    """Once per device, not once for each of its micro-batches."""
    TOGETHER = "for all replicas together"
    """As one function of all replicas: a loop or branch that communicates."""


@dataclasses.dataclass(eq=False)
class Instruction:
    """Makes the values `outputs` from the values `inputs`."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def axis(self) -> int:
        """The planning axis on which the output's kind differs from the input's.

        It is that of all its inputs and outputs.
        """
        before, after = self.inputs[0].placement, self.outputs[0].placement
        differs = (a for a in range(len(after)) if before[a] != after[a])
        return next(differs, 0)

    def along(self, mesh: Mesh) -> MeshAxes:
        """Returns the mesh axes along which the output differs from the input.

        They are some of those of the planning axis `axis`, or all.
        """
        axis = self.axis
        every = mesh.planning_axes[axis]
        before, after = (
            one.placement[axis] for one in (self.inputs[0], self.outputs[0])
        )
        if isinstance(before, PartlySummed):
            return tuple(one for one in every if one not in before.rows.over)
        for kind in (before, after):
            if isinstance(kind, (Sharded, WithHalo)):
                return kind.rows.over
        return every

    @property
    def kind_before(self) -> Kind:
        """The first input's kind on the planning axis `axis`."""
        return self.inputs[0].placement[self.axis]

    @property
    def needs_all_replicas(self) -> bool:
        """Whether it can't run in a function of one replica.

        It communicates, or does something else on each replica.
        """
        return any(one.has(WithHalo) for one in (*self.inputs, *self.outputs))


@dataclasses.dataclass(eq=False)
class Operation(Instruction):
    """Runs an operation of the one-device step.

    Attributes:
        node: The `graph.Node`.
        plans: Its `rules.table.Plan` on each planning axis of the mesh.
        runs: Where it runs; `None` before `place_operations`.
        home: The place where it runs if it runs once.
        is_guarded: Whether its kernel fails for a share without rows, and some
            share can be empty.
    """

    node: Node
    plans: tuple[Plan, ...]
    runs: Runs | None = None
    home: int = 0
    is_guarded: bool = False

    @property
    def is_local(self) -> bool:
        """Whether replicas hold different inputs or outputs."""
        return any(plan.is_local for plan in self.plans)


@dataclasses.dataclass(eq=False)
class Constant(Instruction):
    """Makes a constant on each device that needs it."""

    node: Node


@dataclasses.dataclass(eq=False)
class RequireEqualRows(Instruction):
    """Fails if two inputs that are combined row by row differ in length.

    Attributes:
        rows: The symbols of the inputs' numbers of rows.
        message: Text of the error if these numbers differ.
    """

    rows: tuple[Symbol, Symbol]
    message: str

    @property
    def passed(self) -> Rows | None:
        """Rows of the sharded input; `None` if both are sharded, or neither."""
        shares = [
            kind
            for one in self.inputs
            for kind in one.placement
            if isinstance(kind, Sharded)
        ]
        return shares[0].rows if len(shares) == 1 else None


@dataclasses.dataclass(eq=False)
class KnownSizes(Instruction):
    """Computes a scalar or vector of sizes on the host, from their symbols."""


@dataclasses.dataclass(eq=False)
class LocalShape(Instruction):
    """Makes a vector of sizes, with each replica's size of the sharded axis.

    If some sizes are not known by symbol, its input is the shape of the whole
    value; else it has no input.

    Attributes:
        sizes: The sizes by symbol; `None` if they come from the input. The
            entry of the sharded axis is -1 if the reshape that takes the vector
            infers it, and else `None`.
    """

    sizes: tuple | None = None


@dataclasses.dataclass(eq=False)
class Alias(Instruction):
    """Gives a value another kind, with the same references: writes no node."""


@dataclasses.dataclass(eq=False)
class ToHost(Instruction):
    """Copies a value from each replica's device to the host."""


@dataclasses.dataclass(eq=False)
class ToDevice(Instruction):
    """Copies each replica's value from the host to its device."""


@dataclasses.dataclass(eq=False)
class Slice(Instruction):
    """Cuts each replica's rows out of a whole value.

    Attributes:
        may_be_one: Whether the axis can have a single element for all rows; if
            it has, each replica takes that element.
    """

    may_be_one: bool = False


@dataclasses.dataclass(eq=False)
class FirstOnly(Instruction):
    """Makes a whole value a partial sum: 0 on all replicas but the first.

    Attributes:
        summed: Mesh axes along which the input is a partial sum already. It is 0
            on all replicas but the first ones along the others.
    """

    summed: MeshAxes = ()

    @property
    def needs_all_replicas(self) -> bool:
        return True


@dataclasses.dataclass(eq=False)
class Reshard(Instruction):
    """Converts a tensor to another placement; `lower_reshards` decides how."""


@dataclasses.dataclass(eq=False)
class Communication(Instruction):
    """Sends values between replicas, or between workers."""

    name: ClassVar[str] = ""

    @property
    def needs_all_replicas(self) -> bool:
        return True

    @property
    def is_of_rows(self) -> bool:
        """Whether each micro-batch sends its rows, along an axis without rows."""
        return self.axis > 0 and any(
            is_of_batch(one.placement[0]) for one in self.inputs
        )

    def sizes(self, mesh: Mesh) -> "list[Sent]":
        """Returns a `Sent` for each tensor that replicas of a mesh send."""
        return [self.sent(one, self.type_of(one), mesh) for one in self.inputs]

    def sent(self, one: Value, dtype: tf.DType, mesh: Mesh) -> "Sent":
        """Returns the `Sent` of a value that is sent in a type."""
        along = self.along(mesh)
        parts = math.prod(
            mesh.num_parts(kind.rows)
            for kind in one.placement
            if isinstance(kind, (Sharded, WithHalo)) and kind.rows.over != along
        )
        return one.tensor, one.tensor.num_elements, Fraction(dtype.size, parts)

    def type_of(self, one: Value) -> tf.DType:
        """Returns the type in which an input is sent."""
        return one.tensor.dtype


def _summed_type(tensor: Tensor, widens: bool) -> tf.DType:
    """Returns the type in which parts of a sum are added."""
    is_wide = widens and tensor.is_narrow
    return tf.float32 if is_wide else tensor.dtype


def alike(tensor: Tensor, widens: bool = False) -> Tensor:
    """Returns a new tensor that stands for parts of a tensor.

    With `widens` it has the type in which parts are added.
    """
    dtype = _summed_type(tensor, widens)
    made = Tensor(tensor.node, tensor.index, dtype, tensor.static)
    made.shape = tensor.shape
    return made


@dataclasses.dataclass(eq=False)
class AllReduce(Communication):
    """Reduces the replicas' parts of all inputs, together, to whole values.

    Attributes:
        by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.
        widens: Whether sums of floats of fewer than 32 bits are added in
            float32; see `graph.Tensor.is_narrow`.
    """

    by: str
    widens: bool
    name: ClassVar[str] = "all_reduce"

    def type_of(self, one: Value) -> tf.DType:
        return _summed_type(one.tensor, self.widens and self.by == "sum")


@dataclasses.dataclass(eq=False)
class ReduceScatter(Communication):
    """Sums the replicas' parts, and leaves each replica its rows of the sums.

    Attributes:
        widens: See `AllReduce`.
        in_turns: Whether each micro-batch's parts are scattered in its turn;
            devices then add up their rows over the turns.
    """

    widens: bool
    in_turns: bool = False
    name: ClassVar[str] = "reduce_scatter.sum"

    def type_of(self, one: Value) -> tf.DType:
        return _summed_type(one.tensor, self.widens)


@dataclasses.dataclass(eq=False)
class AllGather(Communication):
    """Gathers the replicas' shards, in order, into the whole value on each.

    Attributes:
        after: Instructions that it waits for, such as the consumers of weights
            that were gathered earlier; see `passes.order_gathers`.
        in_turns: Whether a weight is gathered anew in each micro-batch's turn.
        restoring: How each replica computes the whole value, if what variables
            hold is gathered in its place; other inputs are whole.
    """

    after: tuple[Instruction, ...] = ()
    in_turns: bool = False
    restoring: "Restoring | None" = None
    name: ClassVar[str] = "all_gather"

    @property
    def gathered(self) -> tuple[Value, ...]:
        """The inputs that are gathered."""
        return tuple(one for one in self.inputs if one.has(Sharded))

    def sizes(self, mesh: Mesh) -> "list[Sent]":
        return [
            self.sent(one, self.type_of(one), mesh) for one in self.gathered
        ]


@dataclasses.dataclass(eq=False)
class SendRows(Communication):
    """Gives each replica the rows of one axis that it wants, from those with them.

    Its output is `WithHalo`, or sharded in other shares that are fixed, too.
    """

    name: ClassVar[str] = "send_rows"

    def sizes(self, mesh: Mesh) -> "list[Sent]":
        (one,), (made,) = self.inputs, self.outputs
        before, after = (
            cast(Sharded | WithHalo, kind.placement[self.axis])
            for kind in (one, made)
        )
        held = mesh.ranges(before)
        number = moved(held, mesh.ranges(after))
        size = held[-1][1]
        tensor, elements, each = self.sent(one, one.tensor.dtype, mesh)
        return [(tensor, elements, each * Fraction(number, size * len(held)))]


@dataclasses.dataclass(eq=False)
class JoinAgain(Instruction):
    """Joins rows that a `SendRows` has joined before, for a late use.

    Its input is what was joined. If one of the joined parts is joined again
    itself, as along two axes, that part and its copy follow.

    Attributes:
        after: Instructions that it waits for; see `passes.join_again`.
    """

    after: tuple[Instruction, ...]


@dataclasses.dataclass(frozen=True)
class Restoring:
    """Operations that compute a weight from what its variables hold.

    Attributes:
        reads: The tensors that the all-gather's inputs are, in their order.
        nodes: The operations, in their order.
        makes: Output of the last one.
    """

    reads: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    makes: Tensor


@dataclasses.dataclass(eq=False)
class Broadcast(Communication):
    """Sends the first worker's result of a whole value to all workers.

    A kernel's results can differ between workers in the last bits; copies of a
    variable that such results change would differ, too.
    """

    name: ClassVar[str] = "broadcast"


@dataclasses.dataclass(eq=False)
class GatherCounts(Communication):
    """All-gathers each replica's row count of an input that arrives in shares.

    Attributes:
        num_replicas: Number of replicas of all workers.
    """

    num_replicas: int
    name: ClassVar[str] = "gather_counts"

    def sizes(self, mesh: Mesh) -> "list[Sent]":
        (one,) = self.inputs
        return [(one.tensor, self.num_replicas, Fraction(tf.int32.size))]
