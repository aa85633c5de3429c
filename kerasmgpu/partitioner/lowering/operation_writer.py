"""Writes operations at places: the host, and the replicas of this process."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy.typing as npt
import tensorflow as tf

from kerasmgpu.partitioner.lowering.writing import Writer
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.step.definitions import Attributes, node_name
from kerasmgpu.partitioner.step.places import HOST

_Made = TypeVar("_Made", str, list[str])
_Kept = TypeVar("_Kept")


class OperationWriter:
    """Writes operations of one function at places.

    Args:
        mesh: The `mesh.Mesh` with the places' devices.

    Attributes:
        writer: The function's `writing.Writer`.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.writer = Writer()
        self._kept: dict[Hashable, Any] = {}

    def op(
        self,
        type: str,
        inputs: Sequence[str],
        attributes: Attributes,
        place: int,
        name: str | None = None,
        controls: Sequence[str] = (),
    ) -> list[str]:
        """Writes an operation at a place; see `writing.Writer.op`."""
        return self._hosted(
            place,
            self.writer.op(
                type, inputs, attributes, self.device(place), name, controls
            ),
        )

    def _hosted(self, place: int, made: _Made) -> _Made:
        """Records nodes on the host; returns the references to them."""
        # `Writer.last` is another node if an equal one was written before.
        if place == HOST:
            references = [made] if isinstance(made, str) else made
            names = {node_name(reference) for reference in references}
            self.writer.on_host |= names or {self.writer.last}
        return made

    def constant(
        self, array: npt.ArrayLike, dtype: tf.DType, place: int
    ) -> str:
        """Writes a constant."""
        return self._hosted(
            place, self.writer.constant(array, dtype, self.device(place))
        )

    def cast(
        self, reference: str, source: tf.DType, target: tf.DType, place: int
    ) -> str:
        """Writes a cast, unless the types are equal."""
        if source == target:
            return reference
        attributes = {"SrcT": source, "DstT": target, "Truncate": False}
        return self.op("Cast", [reference], attributes, place)[0]

    def reshape(
        self,
        reference: str,
        shape: str,
        dtype: tf.DType,
        place: int,
        of_shape: tf.DType = tf.int32,
    ) -> str:
        """Writes a reshape.

        Args:
            reference: The tensor.
            shape: Reference to the shape, a vector on the host.
            dtype: Type of the tensor.
            place: Place of the operation.
            of_shape: Type of the shape.
        """
        attributes = {"T": dtype, "Tshape": of_shape}
        return self.op("Reshape", [reference, shape], attributes, place)[0]

    def flat(self, reference: str, dtype: tf.DType, place: int) -> str:
        """Writes a reshape to a vector of all elements."""
        return self.reshape(
            reference, self.constant([-1], tf.int32, HOST), dtype, place
        )

    def concat(
        self, references: Sequence[str], axis: int, dtype: tf.DType, place: int
    ) -> str:
        """Writes a concatenation, unless there is only one tensor."""
        if len(references) == 1:
            return references[0]
        where = self.constant(axis, tf.int32, HOST)
        attributes = {"N": len(references), "T": dtype, "Tidx": tf.int32}
        return self.op("ConcatV2", [*references, where], attributes, place)[0]

    def strided_slice(
        self,
        reference: str,
        begin: str,
        end: str,
        strides: str,
        dtype: tf.DType,
        place: int,
        index: tf.DType = tf.int32,
        **masks: int,
    ) -> str:
        """Writes a `StridedSlice`; masks are 0 where they aren't given."""
        attributes = {"T": dtype, "Index": index}
        for kind in ("begin", "end", "ellipsis", "new_axis", "shrink_axis"):
            attributes[f"{kind}_mask"] = masks.get(f"{kind}_mask", 0)
        inputs = [reference, begin, end, strides]
        return self.op("StridedSlice", inputs, attributes, place)[0]

    def device(self, place: int) -> str:
        """Name of the device of a place."""
        if place == HOST:
            return self.mesh.host
        return self.mesh.devices[place]

    def place_of(self, reference: str) -> int:
        """The place of a value."""
        device = self.writer.device(reference)
        devices = self.mesh.devices
        if device is None or device not in devices:
            return HOST
        return devices.index(device)

    def keep(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """The result of `make()`, cached under a key for this function."""
        if key not in self._kept:
            turn, self.writer.turn = self.writer.turn, None
            self._kept[key] = make()  # For all micro-batches.
            self.writer.turn = turn
        kept: _Kept = self._kept[key]
        return kept
