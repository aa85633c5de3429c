"""Writes operations at places: the host, and the replicas of this process."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy.typing as npt
import tensorflow as tf

from kerasmgpu.partitioner.lowering.writing import Writer
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference

_Kept = TypeVar("_Kept")


class OperationWriter:
    """Writes operations of one function at places.

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
        /,
        inputs: Sequence[Reference],
        place: int | None = None,
        name: str | None = None,
        controls: Sequence[str] = (),
        **attributes: Any,
    ) -> list[Reference]:
        """Writes an operation at a place, by default at that of its first input.

        See `writing.Writer.op`.
        """
        if place is None:
            first = inputs[0]
            place = HOST if first.is_on_host else self.place_of(first)
        return self.writer.op(
            type,
            inputs,
            self.device(place),
            name,
            controls,
            self.is_on_host(place),
            **attributes,
        )

    def constant(
        self,
        array: npt.ArrayLike,
        dtype: tf.DType = tf.int32,
        place: int = HOST,
    ) -> Reference:
        """Writes a constant; by default int32, for sizes, on the host."""
        return self.writer.constant(
            array, dtype, self.device(place), self.is_on_host(place)
        )

    # The next operations are at the place of their first input by default.

    def cast(
        self, reference: Reference, target: tf.DType, place: int | None = None
    ) -> Reference:
        """Writes a cast, unless the types are equal."""
        if reference.dtype == target:
            return reference
        return self.op("Cast", [reference], place, DstT=target)[0]

    def value_if(
        self, condition: bool, reference: Reference, place: int
    ) -> Reference:
        """Writes a value if a condition holds, else zeros of its shape.

        XLA is passed the condition, so that it compiles one function for all
        replicas.
        """
        (passed,) = self.op("Identity", [self.constant(condition, tf.bool)])
        (zeros,) = self.op("ZerosLike", [reference], place)
        return self.op("SelectV2", [passed, reference, zeros], place)[0]

    def reshape(
        self, reference: Reference, shape: Reference, place: int | None = None
    ) -> Reference:
        """Writes a reshape; the shape is a vector on the host."""
        return self.op("Reshape", [reference, shape], place)[0]

    def flat(self, reference: Reference, place: int | None = None) -> Reference:
        """Writes a reshape to a vector of all elements."""
        return self.reshape(reference, self.constant([-1]), place)

    def concat(
        self,
        references: Sequence[Reference],
        axis: int,
        place: int | None = None,
    ) -> Reference:
        """Writes a concatenation, unless there is only one tensor."""
        if len(references) == 1:
            return references[0]
        inputs = [*references, self.constant(axis)]
        return self.op("ConcatV2", inputs, place)[0]

    def concat_again(
        self,
        joined: Reference,
        copies: Mapping[Reference, Reference],
        controls: Sequence[str],
    ) -> Reference:
        """Writes a concatenation once more, unless it had only one tensor.

        Args:
            joined: What `concat` returned.
            copies: References that replace some of its tensors.
            controls: Names of nodes that must run before.
        """
        node = self.writer.node(joined.node)
        if node.op != "ConcatV2":
            return copies.get(joined, joined)
        *parts, axis = [one for one in node.input if not one.startswith("^")]
        inputs = [Reference(one, joined.dtype, joined.device) for one in parts]
        inputs = [copies.get(one, one) for one in inputs]
        inputs.append(Reference(axis, tf.int32))
        place = self.place_of(joined)
        return self.op("ConcatV2", inputs, place, None, controls)[0]

    def strided_slice(
        self,
        reference: Reference,
        bounds: Sequence[Reference],
        place: int | None = None,
        **masks: Any,
    ) -> Reference:
        """Writes a `StridedSlice`.

        Args:
            bounds: Begin, end and strides: vectors on the host.
            **masks: Masks by name; 0 where they aren't given.
        """
        inputs = [reference, *bounds]
        return self.op("StridedSlice", inputs, place, **masks)[0]

    def is_on_host(self, place: int) -> bool:
        """Whether what is written now at a place runs on the host."""
        return place == HOST or self.writer.cursor.on_host

    def device(self, place: int) -> str:
        """Returns the name of the device of a place, for what is written now."""
        if self.is_on_host(place):
            return self.mesh.host
        return self.mesh.devices[place]

    def place_of(self, reference: Reference) -> int:
        """Returns the first replica on a value's device; `HOST` if none is.

        If the host's device is that of a replica, this is the replica: XLA then
        compiles nodes at this place with those of the replica.
        """
        devices = self.mesh.devices
        if reference.device is None or reference.device not in devices:
            return HOST
        return devices.index(reference.device)

    def keep(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Returns `make()`, cached under a key for this function.

        Nodes that `make` writes belong to no turn, as all turns can use them,
        and are on the device of their place.
        """
        if key not in self._kept:
            with self.writer.at(turn=None, once=None, on_host=False):
                self._kept[key] = make()
        kept: _Kept = self._kept[key]
        return kept
