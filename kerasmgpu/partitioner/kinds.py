"""How a tensor of the one-device step lies on the replicas."""

import dataclasses

from kerasmgpu.partitioner import sizes


class Rows:
    """How rows are dealt out: in order, in shares that differ by at most one.

    Replica i holds consecutive rows; it may hold none. Inputs with as many rows
    are dealt out alike, so `Rows` of one size are equal.

    Args:
        size: Number of rows in all, an integer or a `sizes.Size`.
        input: An input of the function whose first axis has these rows.
        of: For entries of sparse rows, whose indices are `input`: the `Rows`
            with which they are dealt out, by the numbers of their rows.
    """

    __slots__ = ("size", "input", "of")

    def __init__(self, size, input=None, of=None):
        self.size = size
        self.input = input
        self.of = of

    def __eq__(self, other):
        return isinstance(other, Rows) and self.size == other.size

    def __hash__(self):
        return hash(self.size)

    def __repr__(self):
        return f"Rows({self.size})"


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Every replica holds the whole value."""

    def __str__(self):
        return "replicated"


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Every replica holds its rows.

    The axis has `outer * rows * inner` elements, in this order: after a
    reshape from `[rows, tokens, units]` to `[rows * tokens, units]`, `inner` is
    `tokens`; after one from `[time, rows, units]` to `[time * rows, units]`,
    `outer` is `time`.
    """

    axis: int
    rows: Rows
    outer: object = 1
    inner: object = 1

    @property
    def size(self):
        """Elements of the axis in all."""
        return sizes.product([self.outer, self.rows.size, self.inner])

    def at(self, axis):
        """The same rows on another axis."""
        return dataclasses.replace(self, axis=axis)

    def in_blocks(self, outer):
        """The same rows, in so many blocks of all rows."""
        return dataclasses.replace(self, outer=outer)

    def __str__(self):
        return f"sharded on axis {self.axis}"


@dataclasses.dataclass(frozen=True)
class Kept(Sharded):
    """What an operation keeps for its gradient, of a replica's own rows.

    Only that gradient can read it: parts of replicas can't be put together.
    """

    def __str__(self):
        return "kept for the gradient"


@dataclasses.dataclass(frozen=True)
class Partial:
    """The value is the sum (or the maximum, or the minimum) over replicas."""

    by: str = "sum"

    def __str__(self):
        return f"partial {self.by}"


@dataclasses.dataclass(frozen=True)
class Own:
    """Every replica holds a value that its own rows give.

    As a whole that is the mean over the replicas, each by the number of its
    rows. Made by `rules.own` only, where that was asked for.
    """

    rows: Rows
    by = "sum"

    def __str__(self):
        return "own"


@dataclasses.dataclass(frozen=True)
class LocalSizes:
    """A vector of sizes, in which one is the local size of sharded rows.

    What an operation wants that is told the shape of what it makes, so that
    each replica makes its own part. `may_infer` says that it can find out one
    size, given as -1, by itself, if it has rows; `shape` is the whole's shape,
    where it is known.
    """

    sharded: Sharded
    may_infer: bool = False
    shape: tuple | None = None

    def __str__(self):
        return f"shape of {self.sharded}"


@dataclasses.dataclass(frozen=True)
class Known:
    """Sizes that are known by symbol: no operation has to compute them."""

    def __str__(self):
        return "known"


@dataclasses.dataclass(frozen=True)
class PerWorker:
    """Whole on every worker, and maybe not the same to the last bit."""

    def __str__(self):
        return "of each worker"


REPLICATED = Replicated()
PARTIAL = Partial()
KNOWN = Known()
PER_WORKER = PerWorker()


class Meeting:
    """What a value is that comes from several sides, as around a loop.

    A replicated value can become sharded or partial without communication, so
    it gives way; where sharded meets partial, or rows meet otherwise, the value
    must be whole.
    """

    def __init__(self, kind=None):
        self.kind = kind
        self._must_be_whole = False

    def must_be_whole(self):
        """Notes a side that needs the value whole."""
        self._must_be_whole = True
        if isinstance(self.kind, ListOf):
            self.kind.must_be_whole()
        else:
            self.kind = REPLICATED

    def add(self, kind, shape=None):
        """Notes one more side; returns whether that changed the kind.

        Args:
            kind: Its kind.
            shape: The sizes that are known to be those of all sides.
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
    """A list of tensors, as loops have them.

    What its elements are is known when all that puts elements into it was
    looked at. Lists that must be alike are joined.
    """

    def __init__(self):
        self._joined = None
        self._meeting = Meeting()

    def __eq__(self, other):
        return isinstance(other, ListOf) and self._cell() is other._cell()

    def __hash__(self):
        return id(self._cell())

    def __str__(self):
        return f"list of {self.kind}"

    @property
    def kind(self):
        """Kind of the elements, or `None` while nothing was put in."""
        return self._cell()._meeting.kind

    def put(self, kind, shape=None):
        """Notes an element; returns whether that changed what the list is."""
        return self._cell()._meeting.add(kind, shape)

    def must_be_whole(self):
        """Notes that somebody needs elements whole."""
        self._cell()._meeting.must_be_whole()

    def join(self, other):
        """Makes two lists one; returns whether that changed anything."""
        one, two = self._cell(), other._cell()
        if one is two:
            return False
        two._joined = one
        if two._meeting._must_be_whole:
            one.must_be_whole()
        if two._meeting.kind is not None:
            one._meeting.add(two._meeting.kind)
        return True

    def _cell(self):
        return self if self._joined is None else self._joined._cell()


Kind = (
    Replicated
    | Sharded
    | Partial
    | Own
    | LocalSizes
    | Known
    | PerWorker
    | ListOf
)
"""How a tensor lies on the replicas along one axis of the device mesh."""

Placement = tuple[Kind, ...]
"""A kind for each axis of the device mesh; there is one axis for now."""


def is_of_rows(kind, shape):
    """Whether a tensor of a shape may be of a kind: it has all of its rows."""
    if not isinstance(kind, Sharded) or isinstance(kind, Kept):
        return True
    return shape is None or (
        kind.axis < len(shape) and shape[kind.axis] == kind.size
    )


def is_local(kind):
    """Whether a tensor of a kind is something else on each replica."""
    if isinstance(kind, ListOf):
        return is_local(kind.kind)  # That may be a list, too.
    return isinstance(kind, (Sharded, Partial, Own, LocalSizes))
