"""Bytes that one replica holds of the values of a program."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import Owned, Sharded
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Tensor


class ValueSizes:
    """Bytes of values for a batch, as the replica with most rows holds them.

    Args:
        known: Maps symbols to their sizes in the first batch.
        rows: Integer, rows of a global batch.
        num_replicas: Integer.
        micro_batches: Integer, parts in which a replica runs its rows.
        whole: Tensors that a replica holds for all its rows nevertheless.

    Attributes:
        assumed: Names of sizes that are known when the step runs only, for
            which `cost.ASSUMED_SIZE` was taken.
    """

    def __init__(
        self,
        known: Mapping[sizes.Symbol, int],
        rows: int,
        num_replicas: int,
        micro_batches: int = 1,
        whole: Collection[Tensor] = (),
    ) -> None:
        self._micro_batches = micro_batches
        self._whole = whole
        self.num_replicas = num_replicas
        self.assumed: set[str] = set()
        self._known = {
            symbol: rows if symbol.is_rows else size
            for symbol, size in known.items()
        }
        self._cost = CostModel(self._known)

    def bytes_of(self, one: Value) -> int:
        """Bytes that a replica holds of a value."""
        tensor, kind = one.tensor, one.kind
        if tensor.dtype in (tf.resource, tf.variant, tf.string):
            return 0  # Handles, lists (see `Walk`), and what is on the host.
        elements = self._elements(tensor)
        if isinstance(kind, Owned):
            kind = kind.rows  # Owners get equal parts, on average.
        if isinstance(kind, Sharded):
            parts = 1 if tensor in self._whole else self._micro_batches
            elements = self._share(elements, kind.rows.size, parts)
        return elements * tensor.dtype.size

    def share_of_batch(self, tensor: Tensor) -> int:
        """Bytes of a replica's share of an input of the step."""
        if tensor.dtype == tf.string:
            return 0
        elements = self._elements(tensor)
        first = tensor.shape[0] if tensor.shape else None
        if isinstance(first, sizes.Size):
            elements = self._share(elements, first, self._micro_batches)
        return elements * tensor.dtype.size

    def value_of(self, size: sizes.SizeLike) -> int | None:
        """A size for this batch; `None` if it depends on anything else."""
        if isinstance(size, sizes.Size) and not all(
            symbol.joined in self._known for symbol in size.symbols
        ):
            return None
        return self._value(size)

    def _elements(self, tensor: Tensor) -> int:
        for size in tensor.shape or ():
            if isinstance(size, sizes.Size):
                self._note_assumed(size)
        return self._cost.elements_of(tensor)

    def _share(self, elements: int, size: sizes.SizeLike, parts: int) -> int:
        """Elements of the largest share, or of the largest of its parts."""
        rows = self._value(size)
        share = _ceiling(_ceiling(rows, self.num_replicas), parts)
        return _ceiling(elements * share, rows) if rows else 0

    def _value(self, size: sizes.SizeLike) -> int:
        if isinstance(size, int):
            return size
        return self._cost.value_of(size)

    def _note_assumed(self, size: sizes.Size) -> None:
        self.assumed.update(
            symbol.name
            for symbol in size.symbols
            if symbol.joined not in self._known
        )


def known_sizes(
    leaves: Iterable[Tensor], shapes: Iterable[Sequence[int | None]]
) -> dict[sizes.Symbol, int]:
    """Maps symbols of a step's inputs to their sizes in a batch.

    Args:
        leaves: The inputs.
        shapes: Their shapes in the batch.
    """
    known: dict[sizes.Symbol, int] = {}
    for leaf, shape in zip(leaves, shapes):
        for symbolic, size in zip(leaf.shape or (), shape):
            if not isinstance(symbolic, sizes.Size) or size is None:
                continue
            symbol, *others = symbolic.symbols
            if not others and sizes.of(symbol) == symbolic:
                known[symbol.joined] = size
    return known


def _ceiling(number: int, divisor: int) -> int:
    return -(-number // divisor)
