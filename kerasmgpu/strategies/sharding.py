"""Chooses which variables are sharded over replicas, and along which axis."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from kerasmgpu._keras import made_variables
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.initial_values import ValueInParts
from kerasmgpu.partitioner.runtime.sharded_variable import AxesToShard
from kerasmgpu.replica_arithmetic import shard_axis


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
    is_embedding: bool


def is_divisible(dtype: tf.DType) -> bool:
    """Whether variables of a type are divided: floats, and what `quantize` made.

    Other integers count steps or seed generators, and stay whole.
    """
    return bool(dtype.is_floating) or dtype in (tf.int8, tf.uint8)


Shard: TypeAlias = str | Callable[[NewVariable], bool | int | None] | None


class Sharding:
    """Chooses the axis along which each new variable is sharded, if any.

    Args:
        shard: `"optimizer"`, `"weights"`, `"embeddings"`, or a function of a
            `NewVariable` that returns whether to shard it, or its axis.
        groups: Function that returns into how many groups they are divided that
            have all variables each; see `Mesh.groups`. Tables of `Embedding`
            layers, of which a step sends the rows that it looks up, are divided
            over all replicas.

    Attributes:
        offloads: Whether slots that it divides are on the host, also those of a
            single replica.
    """

    def __init__(
        self,
        shard: Shard,
        min_shard_bytes: int,
        num_replicas: Callable[[], int],
        groups: Callable[[], int] = lambda: 1,
    ) -> None:
        self.offloads = False
        self._shard = shard
        self._min_bytes = min_shard_bytes
        self._num_replicas = num_replicas
        self._groups = groups

    def may_shard(self, settings: Mapping[str, Any]) -> bool:
        """Whether a variable of these settings can be sharded at all.

        A variable that is combined when it is read, such as a metric's sum, has
        a value of its own on each replica, and can't be sharded.
        """
        on_read = tf.VariableSynchronization.ON_READ
        is_divided = self._num_replicas() > 1 or self.is_offloaded(settings)
        return is_divided and settings.get("synchronization") != on_read

    def is_offloaded(self, settings: Mapping[str, Any]) -> bool:
        """Whether the parts of a variable of these settings are on the host."""
        return self.offloads and _is_slot(settings)

    def infers_shapes(self) -> bool:
        """Whether Keras calls layers only to infer their outputs' shapes."""
        return made_variables.infers_shapes()

    def __call__(
        self, settings: Mapping[str, Any], value: tf.Tensor | ValueInParts
    ) -> AxesToShard | None:
        """Returns the axes along which to shard a variable, or `None`."""
        if value.shape.rank in (None, 0) or not value.shape.is_fully_defined():
            return None
        if value.shape.num_elements() * value.dtype.size < self._min_bytes:
            return None
        if not is_divisible(value.dtype):
            return None
        variable = _described(settings, value)
        reference = getattr(settings.get("colocate_with"), "shard_axes", None)
        return self._axes(variable, reference)

    def _axes(
        self, variable: NewVariable, reference: AxesToShard | None
    ) -> AxesToShard | None:
        """Returns the axes of a variable that are divided.

        Args:
            reference: The axes of the sharded weight whose slot it is, or `None`.
        """
        axis = self._axis(
            variable, None if reference is None else reference[-1]
        )
        if axis is None:
            return None
        if reference is not None and axis == reference[-1]:
            return reference
        return (None, axis) if self._has_groups(variable) else (axis,)

    def _has_groups(self, variable: NewVariable) -> bool:
        return self._groups() > 1 and not variable.is_embedding

    def _num_parts(self, variable: NewVariable) -> int:
        """Returns the number of replicas over which a variable is divided."""
        number = self._num_replicas()
        return (
            number // self._groups() if self._has_groups(variable) else number
        )

    def _axis(self, variable: NewVariable, reference: int | None) -> int | None:
        if callable(self._shard):
            chosen = self._shard(variable)
            return self._chosen(chosen, variable, reference)
        if reference is not None:
            return reference
        if self._shard == "embeddings":
            is_long = variable.shape[0] >= self._num_replicas()
            return 0 if variable.is_embedding and is_long else None
        if self._shard == "optimizer" and variable.kind != "slot":
            return None
        return shard_axis(
            variable.shape, self._num_parts(variable), variable.is_embedding
        )

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
            return shard_axis(
                variable.shape, self._num_parts(variable), variable.is_embedding
            )
        rank = len(variable.shape)
        if not isinstance(chosen, int) or not -rank <= chosen < rank:
            raise InputError(
                "A shard function returns True, False, None or an axis of the "
                f"variable. Received: {chosen!r} for {variable.path!r} of shape "
                f"{list(variable.shape)}"
            )
        return chosen % rank


def _is_slot(settings: Mapping[str, Any]) -> bool:
    made = made_variables.current()
    # Keras's optimizers create each slot next to its weight.
    is_next_to_weight = settings.get("colocate_with") is not None
    return is_next_to_weight or bool(made and made.is_slot)


def _described(
    settings: Mapping[str, Any], value: tf.Tensor | ValueInParts
) -> NewVariable:
    made = made_variables.current()
    kind = "weight" if settings.get("trainable", True) else "other"
    if _is_slot(settings):
        kind = "slot"
    return NewVariable(
        made.path if made else settings.get("name") or "Variable",
        tuple(value.shape),
        value.dtype.name,
        kind,
        bool(made and made.is_embedding),
    )
