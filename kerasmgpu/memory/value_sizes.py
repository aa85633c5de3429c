"""Computes the shapes of a program's values, as one replica holds them."""

from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import Owned, Sharded, WithHalo
from kerasmgpu.partitioner.step import sizes


class ValueSizes:
    """Computes the shapes of values on the replica with most rows of a batch.

    Args:
        cost: The `CostModel` of a program, which knows the sizes of the batch.

    Attributes:
        assumed: Names of sizes that are known only when the step runs, for
            which `cost.ASSUMED_SIZE` was taken.
    """

    def __init__(self, cost: CostModel, mesh: Mesh) -> None:
        self._mesh = mesh
        self.assumed: set[str] = set()
        self._cost = cost

    def shape_of(self, one: Value) -> tuple[int, ...] | None:
        """Returns the shape of a replica's part of a value; `None` if unknown.

        For sizes that the batch doesn't determine, takes `cost.ASSUMED_SIZE`,
        and adds their names to `assumed`.
        """
        tensor = one.tensor
        if tensor.shape is None or None in tensor.shape:
            return None
        shape = list(map(self._value, tensor.shape))
        for kind in one.placement:
            if isinstance(kind, Owned):
                kind = kind.rows  # Owners get equal parts, on average.
            if isinstance(kind, WithHalo):
                ranges = self._mesh.ranges(kind)
                shape[kind.axis] = max(end - start for start, end in ranges)
            if isinstance(kind, Sharded):
                rows = self._value(kind.rows.size)
                share = -(-rows // self._mesh.num_parts(kind.rows))
                axis = kind.axis
                shape[axis] = -(-shape[axis] * share // rows) if rows else 0
        return tuple(shape)

    def value_of(self, size: sizes.SizeLike) -> int | None:
        """Returns a size; `None` if the batch alone doesn't determine it."""
        if isinstance(size, sizes.Size) and not all(
            symbol.joined in self._cost.known for symbol in size.symbols
        ):
            return None
        return self._value(size)

    def _value(self, size: sizes.SizeLike) -> int:
        if isinstance(size, int):
            return size
        self.assumed.update(
            symbol.name
            for symbol in size.symbols
            if symbol.joined not in self._cost.known
        )
        return max(self._cost.value_of(size), 0)
