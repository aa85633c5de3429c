"""Writes a function with the communication of its replicas."""

import copy
from collections.abc import Sequence

from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.rules.kinds import MeshAxes
from kerasmgpu.partitioner.step.graph import Tensor


class Build(Function):
    """Writes a function with the communication of its replicas.

    Args:
        replicas: `replicas.Replicas` on the program's mesh.
    """

    def __init__(
        self,
        program: Lowered,
        library: list[function_pb2.FunctionDef],
        replicas: Replicas,
        parent: "Build | None" = None,
    ) -> None:
        super().__init__(program, library, replicas, parent)
        self.replicas = replicas

    def of_devices(
        self, tensors: Sequence[Tensor], replicas: Replicas
    ) -> "Build":
        """Returns a view of this function with one place per device.

        Nodes that are written through the view are this function's. Of its
        values, the view has only those of `tensors`.

        Args:
            tensors: Tensors of which each device has one part, for all its
                micro-batches.
            replicas: `replicas.Replicas` with one share per device.
        """
        view = copy.copy(self)
        view.replicas = view._row_shares = replicas
        view.mesh = replicas.mesh
        if self.places is not None:
            each = self.mesh.micro_batches
            view.places = [place // each for place in self.places[::each]]
        view._natural, view._values = {}, {}
        for tensor in tensors:
            parts = list(self.given(tensor))
            made = self.natural(tensor)
            view.give(made, parts[:: self.mesh.micro_batches])
        return view

    def on_line(self, along: MeshAxes, places: Sequence[int]) -> "Build":
        """Returns a view of this function for a line of a mesh's replicas.

        The line is a mesh of one axis, whose places are counted along it. Nodes
        that are written through the view are this function's; it has values of
        its own. All calls for a line return the same view.

        Args:
            places: Places of the line's replicas; see `Mesh.lines`.
        """

        def view() -> "Build":
            made, mesh = copy.copy(self), self.mesh.line(along, places)
            made.whole, made.places, made.mesh = self, places, mesh
            made.line = along, self.mesh.number_of(along, places)
            made.replicas = made._row_shares = self.replicas.on_line(mesh)
            made.sizes = copy.copy(self.sizes)
            made.sizes.places = places
            made._natural, made._values, made._kept = {}, {}, {}
            return made

        return self.keep(("line", along, places), view)
