"""Counts references to buffers, and the bytes of buffers that are alive."""

import collections
from collections.abc import Collection

FREED = -1
"""The `references` of a buffer that has been freed."""


class Buffer:
    """Memory of a tensor, which several values may share.

    Args:
        category: String, the part of a step's memory that it counts towards.
        holds: Buffers that it keeps alive: elements of a list, the tensor that
            it is a part of, operands of an operation that XLA fuses.
        scope: String, the name scope of the operation that made it.

    Attributes:
        references: Number of reads to come, plus the number of variables and
            buffers that hold it.
        is_part: Whether it is a part of the tensor that it holds.
    """

    __slots__ = (
        "num_bytes",
        "category",
        "holds",
        "scope",
        "references",
        "ledger",
        "is_part",
    )

    def __init__(
        self,
        num_bytes: int,
        category: str,
        holds: "tuple[Buffer, ...]" = (),
        scope: str = "",
    ) -> None:
        self.num_bytes = num_bytes
        self.scope = scope
        self.category = category
        self.holds = holds
        self.references = 0
        self.ledger: Ledger | None = None
        self.is_part = False

    @property
    def is_alone(self) -> bool:
        """Whether it holds nothing, or is the last part left of a tensor."""
        if not self.is_part:
            return not self.holds
        (whole,) = self.holds
        return whole.references == 1 and whole.is_alone


class VariableBuffer(Buffer):
    """Buffer of a variable's handle; it has no bytes, but its content has.

    Attributes:
        is_copied: Whether reads of the variable are copies.
    """

    __slots__ = ("content", "is_copied")

    def __init__(self, content: Buffer) -> None:
        super().__init__(0, "")
        self.content = content
        self.is_copied = False


class Ledger:
    """Counts the bytes that are alive in one memory, and their peak.

    Attributes:
        peak: Integer, most bytes that were alive at once.
    """

    def __init__(self) -> None:
        self._alive: collections.Counter[tuple[str, str]] = (
            collections.Counter()
        )
        self._total = 0
        self.peak = 0
        self._at_peak: dict[tuple[str, str], int] = {}

    @property
    def at_peak(self) -> dict[str, int]:
        """Dictionary from categories to bytes alive at the peak."""
        found: collections.Counter[str] = collections.Counter()
        for (category, _), num_bytes in self._at_peak.items():
            found[category] += num_bytes
        return dict(found)

    def scopes_at_peak(self, categories: Collection[str]) -> dict[str, int]:
        """Returns the bytes of some categories at the peak, by name scope."""
        found: collections.Counter[str] = collections.Counter()
        for (category, scope), num_bytes in self._at_peak.items():
            if category in categories:
                found[scope] += num_bytes
        return dict(found)

    @property
    def total(self) -> int:
        """Bytes that are alive now."""
        return self._total

    def made(self, buffer: Buffer, references: int) -> Buffer:
        """Counts a new buffer, sets its references, and returns it.

        Adds a reference to each buffer that it holds.
        """
        for held in buffer.holds:
            held.references += 1
        buffer.references, buffer.ledger = references, self
        self.count(buffer, buffer.num_bytes)
        if self._total > self.peak:
            self.peak = self._total
            self._at_peak = dict(self._alive)
        return buffer

    def count(self, buffer: Buffer, num_bytes: int) -> None:
        """Adds bytes, negative if freed, to those alive of a buffer's category.

        Doesn't update the peak.
        """
        self._alive[buffer.category, buffer.scope] += num_bytes
        self._total += num_bytes


def release(buffer: Buffer, references: int = 1) -> None:
    """Drops references; at zero, frees a buffer and releases those it holds."""
    waiting = [(buffer, references)]
    while waiting:
        buffer, references = waiting.pop()
        buffer.references -= references
        if buffer.references > 0:
            continue
        buffer.references = FREED
        if buffer.ledger is not None:
            buffer.ledger.count(buffer, -buffer.num_bytes)
        waiting += [(held, 1) for held in buffer.holds]
        buffer.holds = ()


def recategorize(buffer: Buffer, category: str) -> None:
    """Moves a buffer's bytes to another category."""
    ledger, num_bytes = buffer.ledger, buffer.num_bytes
    if ledger is not None:
        ledger.count(buffer, -num_bytes)
    buffer.category = category
    if ledger is not None:
        ledger.count(buffer, num_bytes)
