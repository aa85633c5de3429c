"""Writes a function with the communication of its replicas."""

import copy
from collections.abc import Sequence

from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import MeshAxes


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

    def of_devices(self, turn: int = 0) -> "Build":
        """Returns a view of this function with one place per device.

        Args:
            turn: The micro-batch whose place is a device's.
        """
        each = self.mesh.micro_batches
        if each == 1:
            return self
        places = range(turn, self.mesh.num, each)
        return self._at(self.mesh.of_devices, places)

    def on_line(self, along: MeshAxes, places: Sequence[int]) -> "Build":
        """Returns a view of this function for a line of a mesh's replicas.

        The line is a mesh of one axis, whose places are counted along it. All
        calls for a line return the same view, which keeps what `keep` makes
        apart from what the function does.

        Args:
            places: Places of the line's replicas; see `Mesh.lines`.
        """

        def view() -> "Build":
            made = self._at(self.mesh.line(along, places), places)
            made.whole, made._kept = self, {}
            made.line = along, self.mesh.number_of(along, places)
            return made

        return self.keep(("line", along, places), view)

    def _at(self, mesh: Mesh, places: Sequence[int]) -> "Build":
        """Returns a view of this function for some of its places.

        Nodes that are written through the view are this function's; values are
        its own.

        Args:
            mesh: The mesh of these places, by which the view counts them.
        """
        view = copy.copy(self)
        view.mesh, view.places = mesh, list(map(self._place, places))
        view.replicas = view._row_shares = self.replicas.on(mesh)
        view.sizes = self.sizes.at(view.places)
        view._natural, view._values = {}, {}
        return view
