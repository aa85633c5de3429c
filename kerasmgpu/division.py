"""Decides which axes of variables are divided over the devices.

Strategies ask when a variable is created, predictions ask about variables that
needn't exist: both get the axes from `Division.axes_to_shard`. Plain arithmetic
on the standard library.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kerasmgpu.errors import InputError
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES, shard_axis

AxesToShard: TypeAlias = tuple[int | None, ...]
"""For each axis of the mesh, the axis of a variable that is divided along it.

An axis of a variable can be divided along several mesh axes; see `divided_axes`.
"""


@dataclasses.dataclass(frozen=True)
class NewVariable:
    """Describes a variable that is created under a strategy with `shard`.

    Attributes:
        path: Keras's path, such as `"dense/kernel"`; the name of a variable
            that isn't Keras's.
        shape: Tuple of its sizes.
        dtype: Name of its type, such as `"float32"`.
        kind: `"weight"`; `"slot"` for a variable of an optimizer; `"other"`
            for a variable that isn't trainable.
        is_embedding: Whether it is a table of a `keras.layers.Embedding`.
        spec: Mesh axis of each axis of the variable in a `keras.distribution`,
            `None` for those that are not divided. Empty without a layout, and
            for a slot; `None` if a layout is still to be found.
        is_combined: Whether it is combined when it is read, such as a metric's
            sum: each replica has a value of its own.

    Example:

    ```python
    def shard(variable):
        return variable.is_embedding and variable.shape[0] >= 100_000

    strategy = kerasmgpu.MirroredStrategy(shard=shard)
    ```
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    is_embedding: bool = False
    spec: tuple[str | None, ...] | None = ()
    is_combined: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole variable."""
        return math.prod(self.shape) * element_bytes(self.dtype)


Shard: TypeAlias = str | Callable[[NewVariable], bool | int | None] | None


class Division:
    """Chooses the axes along which each variable is divided, if any.

    Args:
        shard: `"optimizer"`, `"weights"`, `"embeddings"`, or a function of a
            `NewVariable` that returns whether to divide it, or its axis. `None`
            or `"none"` divide nothing.
        min_shard_bytes: Integer, bytes of the smallest variable that is divided.
        axes: Function that returns the sizes of the mesh axes. Variables are
            divided along the last one. Only tables of `Embedding` layers, of
            which a step sends the rows that it looks up, are divided along all.

    Attributes:
        offloads: Whether slots that it divides are on the host, also those of a
            single replica.
        divides_rows: Whether batches are divided by rows.
    """

    divides_rows: bool = True

    def __init__(
        self,
        shard: Shard,
        min_shard_bytes: int = MIN_SHARD_BYTES,
        axes: Callable[[], tuple[int, ...]] = lambda: (1,),
    ) -> None:
        self.offloads = False
        self._shard = None if shard == "none" else shard
        self._min_bytes = min_shard_bytes
        self._mesh_axes = axes

    @property
    def axes(self) -> tuple[int, ...]:
        """Sizes of the mesh axes."""
        return self._mesh_axes()

    def may_divide(self, is_slot: bool, is_combined: bool) -> bool:
        """Whether a variable can be divided, whatever its path and value.

        Args:
            is_slot: Whether it is a variable of an optimizer.
            is_combined: See `NewVariable`.
        """
        is_divided = math.prod(self.axes) > 1 or self.offloads and is_slot
        return is_divided and not is_combined

    def is_meant(self, variable: NewVariable) -> bool:
        """Whether `shard` is about a variable, were it large enough."""
        if not variable.shape or not is_divisible(variable.dtype):
            return False
        if self._shard == "optimizer":
            return variable.kind == "slot"
        return self._shard != "embeddings" or variable.is_embedding

    def axes_to_shard(
        self, variable: NewVariable, reference: AxesToShard | None = None
    ) -> AxesToShard | None:
        """Returns the axes along which a variable is divided, or `None`.

        Args:
            reference: The axes of the divided weight whose slot it is, or `None`.
        """
        if (
            not self.may_divide(variable.kind == "slot", variable.is_combined)
            or not variable.shape
            or not is_divisible(variable.dtype)
            or variable.num_bytes < self._min_bytes
        ):
            return None
        return self._axes(variable, reference)

    def _axes(
        self, variable: NewVariable, reference: AxesToShard | None
    ) -> AxesToShard | None:
        axis = self._axis(
            variable, None if reference is None else reference[-1]
        )
        if axis is None:
            return None
        if reference is not None and axis == reference[-1]:
            return reference
        return tuple(
            axis if is_along else None for is_along in self._along(variable)
        )

    def _along(self, variable: NewVariable) -> list[bool]:
        """Returns for each mesh axis whether a variable is divided along it."""
        *others, _ = self.axes
        return [*(variable.is_embedding for _ in others), True]

    def _longest_axis(self, variable: NewVariable) -> int | None:
        pairs = zip(self.axes, self._along(variable))
        number = math.prod(size for size, is_along in pairs if is_along)
        return shard_axis(variable.shape, number, variable.is_embedding)

    def _axis(self, variable: NewVariable, reference: int | None) -> int | None:
        if callable(self._shard):
            chosen = self._shard(variable)
            return self._chosen(chosen, variable, reference)
        if reference is not None:
            return reference
        if self._shard is None or not self.is_meant(variable):
            return None
        if self._shard == "embeddings":
            return 0 if variable.shape[0] >= math.prod(self.axes) else None
        return self._longest_axis(variable)

    def _chosen(
        self,
        chosen: bool | int | None,
        variable: NewVariable,
        reference: int | None,
    ) -> int | None:
        """Returns the axis for a user's choice; raises if that is invalid."""
        if chosen is None or chosen is False:
            return None
        if chosen is True:
            if reference is not None:
                return reference
            return self._longest_axis(variable)
        rank = len(variable.shape)
        if not isinstance(chosen, int) or not -rank <= chosen < rank:
            raise InputError(
                "A shard function returns True, False, None or an axis of the "
                f"variable. Received: {chosen!r} for {variable.path!r} of shape "
                f"{list(variable.shape)}"
            )
        return chosen % rank


def divided_axes(axes: AxesToShard) -> dict[int, tuple[int, ...]]:
    """Returns the axes of a variable that are divided, and along which mesh axes.

    >>> divided_axes((None, 1)), divided_axes((0, 0))
    ({1: (1,)}, {0: (0, 1)})
    """
    found: dict[int, tuple[int, ...]] = {}
    for number, axis in enumerate(axes):
        if axis is not None:
            found[axis] = (*found.get(axis, ()), number)
    return found


def is_divisible(dtype: str) -> bool:
    """Whether variables of a type are divided: floats, and what `quantize` made.

    Other integers count steps or seed generators, and stay whole.
    """
    return "float" in dtype or dtype in ("int8", "uint8")


def element_bytes(dtype: str) -> int:
    """Returns the bytes of an element of a type.

    >>> element_bytes("bfloat16"), element_bytes("float8_e4m3fn"), element_bytes("bool")
    (2, 1, 1)
    """
    bits = re.search(r"\d+", dtype)
    return 1 if bits is None else max(int(bits[0]) // 8, 1)


def elements_of_part(
    shape: Sequence[int], axes: AxesToShard, sizes: Sequence[int]
) -> int:
    """Returns the elements of a divided variable on the device with most.

    Args:
        sizes: Sizes of the mesh axes.
    """
    own = list(shape)
    for axis, size in zip(axes, sizes):
        if axis is not None:
            own[axis] = -(-own[axis] // size)
    return math.prod(own)
