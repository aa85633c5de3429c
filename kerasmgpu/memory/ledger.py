"""Buffers with reference counts, and the bytes that are alive."""

import collections
from collections.abc import Collection

FREED = -1
"""References to a buffer that is free."""


class Buffer:
    """Memory of a tensor, which several values may share.

    Args:
        num_bytes: Integer.
        category: String, what it counts as at the peak.
        holds: Buffers that live at least as long: elements of a list, the
            tensor that it is a part of, operands of what is not written.
        scope: String, the name scope of the operation that made it.

    Attributes:
        references: Number of values to come that read it, and of variables
            and buffers that hold it.
        ledger: The `Ledger` that counts it.
        is_part: Whether it is a part of a tensor, which it holds.
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
        """Whether nothing else reads what it is a part of, if it is one."""
        if not self.is_part:
            return not self.holds
        (whole,) = self.holds
        return whole.references == 1 and whole.is_alone


class VariableBuffer(Buffer):
    """A variable: its handle has no bytes, its content has.

    Args:
        content: `Buffer` of its value.

    Attributes:
        is_copied: Whether reads of it are copies.
    """

    __slots__ = ("content", "is_copied")

    def __init__(self, content: Buffer) -> None:
        super().__init__(0, "")
        self.content = content
        self.is_copied = False


class Ledger:
    """Bytes that are alive, and their peak.

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
        """Bytes by category when most were alive."""
        found: collections.Counter[str] = collections.Counter()
        for (category, _), num_bytes in self._at_peak.items():
            found[category] += num_bytes
        return dict(found)

    def scopes_at_peak(self, categories: Collection[str]) -> dict[str, int]:
        """Bytes by name scope when most were alive, of some categories."""
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
        """Adds a new buffer, which has that many references."""
        for held in buffer.holds:
            held.references += 1
        buffer.references, buffer.ledger = references, self
        self.count(buffer, buffer.num_bytes)
        if self._total > self.peak:
            self.peak = self._total
            self._at_peak = dict(self._alive)
        return buffer

    def count(self, buffer: Buffer, num_bytes: int) -> None:
        """Adds bytes to those that are alive of a buffer's category."""
        self._alive[buffer.category, buffer.scope] += num_bytes
        self._total += num_bytes


def release(buffer: Buffer, references: int = 1) -> None:
    """Drops references to a buffer; without any, it is freed."""
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
