"""Kinds: how a tensor of the one-device step is distributed over replicas."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeGuard, cast

from kerasmgpu.partitioner.rules.window_ranges import Reach
from kerasmgpu.partitioner.step import sizes

if TYPE_CHECKING:
    from kerasmgpu.partitioner.step.graph import Tensor
    from kerasmgpu.partitioner.step.sizes import SizeLike

Shape = tuple
"""Sizes of axes; `None` stands for an unknown size."""

MeshAxes: TypeAlias = tuple[int, ...]
"""Numbers of mesh axes, in order, along which something is divided.

Along `(0, 1)` it is divided into `sizes[0] * sizes[1]` parts, in C order.
"""


class Rows:
    """The rows of a batch, split into consecutive shares, one per replica.

    Shares differ by at most one row and can be empty. Inputs with equal numbers
    of rows are split alike, so `Rows` of one size are equal; those of a batch
    and of a variable never are.

    Args:
        size: Number of rows in all, an integer or a `sizes.Size`.
        input: A tensor whose first axis has these rows: an input of the
            function, or the indices of a sparse tensor. `None` for others.
        of: If these are the entries of a sparse tensor, whose indices are
            `input`: the `Rows` of that tensor. Each entry is on the replica
            that has its row, so shares can differ by more than one entry.
        are_of_variable: Whether they are an axis of a sharded variable, or one
            that the program lays out, instead of a batch's rows.
        over: The mesh axes that they are divided along.
    """

    __slots__ = ("size", "input", "of", "are_of_variable", "over")

    def __init__(
        self,
        size: "SizeLike",
        input: "Tensor | None" = None,
        of: "Rows | None" = None,
        are_of_variable: bool = False,
        over: MeshAxes = (0,),
    ) -> None:
        self.size = size
        self.over = over
        self.are_of_variable = are_of_variable
        self.input: Tensor | sizes.MaybeNone = input
        self.of: Rows | sizes.MaybeNone = of

    @property
    def are_fixed(self) -> bool:
        """Whether their shares are known before a batch is."""
        return self.are_of_variable and isinstance(self.size, int)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Rows)
            and self.size == other.size
            and self.are_of_variable == other.are_of_variable
            and self.over == other.over
        )

    def __hash__(self) -> int:
        return hash(self.size)

    def __repr__(self) -> str:
        return f"Rows({self.size})"


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Every replica holds the whole value."""

    def __str__(self) -> str:
        return "replicated"


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Every replica holds its share of the rows along one axis.

    The axis has `outer * rows * inner` elements, in this order: after a
    reshape from `[rows, tokens, units]` to `[rows * tokens, units]`, `inner` is
    `tokens`; after one from `[time, rows, units]` to `[time * rows, units]`,
    `outer` is `time`.
    """

    axis: int
    rows: Rows
    outer: "SizeLike" = 1
    inner: "SizeLike" = 1

    @property
    def size(self) -> "SizeLike":
        """Size of the whole axis."""
        return sizes.product([self.outer, self.rows.size, self.inner])

    def at(self, axis: int) -> "Sharded":
        """Returns the same sharding on another axis."""
        return dataclasses.replace(self, axis=axis)

    def in_blocks(self, outer: "SizeLike") -> "Sharded":
        """Returns the same sharding of `outer` blocks, each of all rows."""
        return dataclasses.replace(self, outer=outer)

    def __str__(self) -> str:
        return f"sharded on axis {self.axis}"


@dataclasses.dataclass(frozen=True)
class Kept(Sharded):
    """Opaque state that a forward kernel keeps for the gradient of its rows.

    Only that gradient can read it, on the same device: it can't be gathered.
    """

    def __str__(self) -> str:
        return "kept for the gradient"


@dataclasses.dataclass(frozen=True)
class PartlySummed(Sharded):
    """Every replica holds its rows of a sum along the mesh axes `rows.over`.

    The value's rows are the sums of these along the other mesh axes that are
    planned with them; see `Mesh.planning_axes`.
    """

    def __str__(self) -> str:
        return f"{super().__str__()}, partly summed"


@dataclasses.dataclass(frozen=True)
class WithHalo:
    """Every replica holds the rows of one axis that its windows reach over.

    They overlap those of its neighbours.

    Attributes:
        axis: The axis.
        rows: The rows, or windows, that are divided into shares.
        reach: Which elements of the axis a replica holds, for its share.
    """

    axis: int
    rows: Rows
    reach: Reach

    def __str__(self) -> str:
        return f"with a halo on axis {self.axis}"


@dataclasses.dataclass(frozen=True)
class Partial:
    """The value is the sum (maximum, minimum …) of the replicas' values."""

    by: str = "sum"

    def __str__(self) -> str:
        return f"partial {self.by}"


@dataclasses.dataclass(frozen=True)
class PerReplica:
    """Every replica holds a value computed from its rows alone.

    The one-device value is the mean over the replicas, weighted by their rows.
    Only `rules.per_replica` gives this kind, for layers that ask for it.
    """

    rows: Rows
    by: ClassVar[str] = "sum"

    def __str__(self) -> str:
        return "per replica"


@dataclasses.dataclass(frozen=True)
class LocalSizes:
    """A vector of sizes, one of them the local size of a sharded axis.

    Operations that take the shape of their output as an input want this kind,
    so that each replica makes its shard.

    Attributes:
        sharded: Kind of the output.
        may_infer: Whether the operation can infer the size of the sharded axis,
            given as -1. No size can be inferred where another one is 0.
        shape: Shape of the whole output; `None` if unknown.
    """

    sharded: Sharded
    may_infer: bool = False
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"shape of {self.sharded}"


@dataclasses.dataclass(frozen=True)
class Owned:
    """Every replica holds updates, or row numbers, of table rows that it owns.

    They were sent to the owners, and keep their order.

    Attributes:
        table: How the table, a variable, is sharded: on its first axis.
        rows: How the updates and the numbers are sharded before they are sent.
        numbers: Row numbers: each is the row of the table that an update
            changes.
    """

    table: Sharded
    rows: Sharded
    numbers: "Tensor"

    def __str__(self) -> str:
        return "where its rows are"


@dataclasses.dataclass(frozen=True)
class Known:
    """Sizes known by symbol, which no operation has to compute."""

    def __str__(self) -> str:
        return "known"


@dataclasses.dataclass(frozen=True)
class PerWorker:
    """Every worker holds the whole value; workers' last bits can differ."""

    def __str__(self) -> str:
        return "of each worker"


@dataclasses.dataclass(frozen=True)
class Counts:
    """The row counts of all replicas' shares, in place of the tensor."""

    def __str__(self) -> str:
        return "counts of rows"


REPLICATED = Replicated()
PARTIAL = Partial()
KNOWN = Known()
PER_WORKER = PerWorker()
COUNTS = Counts()


class MergedKind:
    """The kind of a value with several definitions, such as a loop variable.

    A replicated definition becomes sharded or partial without communication, so
    the other definition's kind is chosen. If one is sharded and another
    partial, or their rows differ, the value is replicated.
    """

    def __init__(self, kind: "Kind | None" = None) -> None:
        self.kind = kind
        self._must_be_whole = False

    def must_be_whole(self) -> None:
        """Makes the value, or a list's elements, replicated from now on."""
        self._must_be_whole = True
        if isinstance(self.kind, ListOf):
            self.kind.must_be_whole()
        else:
            self.kind = REPLICATED

    def add(self, kind: "Kind", shape: Shape | None = None) -> bool:
        """Adds a definition; returns whether that changed the kind.

        Args:
            shape: The common shape of all definitions, as far as it is known.
        """
        before = self.kind
        if isinstance(kind, ListOf):
            if isinstance(before, ListOf):
                return before.join(kind)
            if self._must_be_whole:
                kind.must_be_whole()
            self.kind = kind
        elif not is_of_rows(kind, shape) or not is_of_rows(self.kind, shape):
            self.must_be_whole()
        elif self.kind is None or self.kind == kind:
            self.kind = kind
        elif self._must_be_whole or kind == REPLICATED:
            pass
        elif self.kind == REPLICATED:
            self.kind = kind
        else:
            self.must_be_whole()
        return before != self.kind


class ListOf:
    """The kind of a list of tensors (`TensorList`), as loops have them.

    The kind of its elements is known when all operations that put elements into
    it have been planned. Lists that must have one kind are joined (union-find).
    """

    def __init__(self) -> None:
        self._joined: ListOf | None = None
        self._merged = MergedKind()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ListOf) and self._cell() is other._cell()

    def __hash__(self) -> int:
        return id(self._cell())

    def __str__(self) -> str:
        return f"list of {self.kind}"

    @property
    def kind(self) -> "Kind | None":
        """Kind of the elements; `None` while none was put in."""
        return self._cell()._merged.kind

    def put(self, kind: "Kind", shape: Shape | None = None) -> bool:
        """Adds an element; returns whether it changed the kind of elements."""
        return self._cell()._merged.add(kind, shape)

    def must_be_whole(self) -> None:
        """Makes the elements replicated from now on."""
        self._cell()._merged.must_be_whole()

    def join(self, other: "ListOf") -> bool:
        """Gives two lists one kind; returns `False` if they already share one."""
        one, two = self._cell(), other._cell()
        if one is two:
            return False
        two._joined = one
        if two._merged._must_be_whole:
            one.must_be_whole()
        if two._merged.kind is not None:
            one._merged.add(two._merged.kind)
        return True

    def _cell(self) -> "ListOf":
        return self if self._joined is None else self._joined._cell()


Kind = (
    Replicated
    | Sharded
    | WithHalo
    | Partial
    | PerReplica
    | LocalSizes
    | Owned
    | Known
    | PerWorker
    | Counts
    | ListOf
)
"""How a tensor is distributed along one planning axis of the device mesh."""

Placement = tuple[Kind, ...]
"""A kind for each planning axis of the device mesh."""


def is_of_rows(kind: Kind | None, shape: Shape | None) -> bool:
    """Whether a tensor of a shape can have a kind.

    If it is sharded, the sharded axis must have the size `kind.size`; a tensor
    of unknown shape can have any kind.
    """
    if not isinstance(kind, Sharded) or isinstance(kind, Kept):
        return True
    return shape is None or (
        kind.axis < len(shape) and shape[kind.axis] == kind.size
    )


def is_of_variable(kind: Kind | None) -> bool:
    """Whether a tensor is sharded along an axis of a sharded variable."""
    return isinstance(kind, Sharded) and kind.rows.are_of_variable


def is_fixed(kind: Kind | None) -> TypeGuard[Sharded]:
    """Whether a tensor is sharded in one block, with shares that are fixed."""
    return (
        type(kind) is Sharded
        and kind.rows.are_of_variable
        and kind.outer == 1
        and isinstance(kind.size, int)
    )


def range_of(
    kind: Sharded | WithHalo, share: tuple[int, int]
) -> tuple[int, int]:
    """Returns which elements of its axis a replica holds, for its share of rows.

    Args:
        kind: One whose shares are fixed.
    """
    if isinstance(kind, WithHalo):
        return kind.reach.of(share)
    inner = cast(int, kind.inner)
    return share[0] * inner, share[1] * inner


def is_moved(kind: Kind, want: Kind) -> bool:
    """Whether replicas get one kind from another by sending rows of one axis."""
    if not is_fixed(kind) or kind == want:
        return False
    if isinstance(want, WithHalo) or is_fixed(want):
        return (kind.axis, kind.rows.over) == (want.axis, want.rows.over)
    return False


def is_exchanged(kind: Kind, want: Kind) -> bool:
    """Whether replicas get one kind from another by an all-to-all."""
    return (
        is_fixed(kind)
        and is_fixed(want)
        and kind.axis != want.axis
        and kind.rows.over == want.rows.over
    )


def is_of_batch(kind: Kind | None) -> bool:
    """Whether a tensor is sharded by the rows of a batch."""
    return isinstance(kind, Sharded) and not kind.rows.are_of_variable


def is_local(kind: Kind | None) -> bool:
    """Whether replicas hold different values of a tensor of this kind."""
    if isinstance(kind, ListOf):
        return is_local(kind.kind)  # Lists of lists.
    return isinstance(
        kind, (Sharded, WithHalo, Partial, PerReplica, LocalSizes, Owned)
    )
