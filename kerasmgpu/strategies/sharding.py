"""Chooses which variables are sharded over replicas, and along which axis."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from kerasmgpu._keras import made_variables
from kerasmgpu.division import AxesToShard, Division, NewVariable, Shard
from kerasmgpu.partitioner.runtime.initial_values import ValueInParts

__all__ = ["NewVariable", "Shard", "Sharding"]


class Sharding(Division):
    """Divides variables that TensorFlow creates, as `Division` says."""

    def may_shard(self, settings: Mapping[str, Any]) -> bool:
        """Whether a variable of these settings can be sharded at all."""
        return self.may_divide(_is_slot(settings), _is_combined(settings))

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
        if value.shape.rank is None or not value.shape.is_fully_defined():
            return None
        reference = getattr(settings.get("colocate_with"), "shard_axes", None)
        return self.axes_to_shard(self._described(settings, value), reference)

    def _described(
        self, settings: Mapping[str, Any], value: tf.Tensor | ValueInParts
    ) -> NewVariable:
        """Describes a variable that is created, as `made_variables.described`."""
        made = made_variables.current()
        return made_variables.description(
            made,
            made.path if made else settings.get("name") or "Variable",
            tuple(value.shape),
            value.dtype.name,
            _is_slot(settings),
            settings.get("trainable", True),
            _is_combined(settings),
        )


def _is_slot(settings: Mapping[str, Any]) -> bool:
    made = made_variables.current()
    # Keras's optimizers create each slot next to its weight.
    is_next_to_weight = settings.get("colocate_with") is not None
    return is_next_to_weight or bool(made and made.is_slot)


def _is_combined(settings: Mapping[str, Any]) -> bool:
    on_read = tf.VariableSynchronization.ON_READ
    return bool(settings.get("synchronization") == on_read)
