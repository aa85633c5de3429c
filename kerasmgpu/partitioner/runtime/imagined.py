"""Replicas and variables of programs that are written but never run."""

import itertools
from typing import Any

import tensorflow as tf

from kerasmgpu.division import AxesToShard
from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.lowering.communicators import Options
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.sharded_variable import (
    variable_of,
)

_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


class ImaginedReplicas(CollectiveReplicas):
    """The replicas of one worker of a job, on devices that needn't exist.

    Each worker has `num`; see `Mesh` for the other arguments.

    Args:
        device_type: `"GPU"` or `"CPU"`. CPU devices share their memory.
    """

    def __init__(
        self,
        num: int,
        num_workers: int,
        device_type: str,
        divides_rows: bool = True,
        axes: tuple[int, ...] = (),
        joins_axes: bool = False,
        worker: int = 0,
    ) -> None:
        devices = [
            f"/job:localhost/replica:0/task:0/device:{device_type}:{number}"
            for number in range(num)
        ]
        hint = "nccl" if device_type == "GPU" else "ring"
        mesh = Mesh.on(
            devices,
            _HOST,
            worker,
            num_workers,
            divides_rows=divides_rows,
            axes=axes,
            joins_axes=joins_axes,
        )
        # The counter of real groups must stay equal on all workers.
        super().__init__(mesh, Options(hint, group_numbers=itertools.count()))


class ImaginedVariable:
    """A captured tensor, with its copies or parts on imagined replicas.

    Args:
        tensor: The captured tensor: a variable's handle, or any other.
        axes: For each axis of the mesh, the axis along which its variable is
            sharded, or `None`. Empty for a whole variable.
        is_offloaded: Whether its parts are on the host.

    Attributes:
        is_copied: Whether devices have a copy or a part each.
    """

    def __init__(
        self, tensor: tf.Tensor, axes: AxesToShard, is_offloaded: bool = False
    ) -> None:
        self.tensor = tensor
        self.axes = axes
        self.is_offloaded = is_offloaded
        self._handle_data = getattr(tensor, "_handle_data", None)
        copies = getattr(tensor, "_distributed_container", None)
        self.is_copied = copies is not None or variable_of(tensor) is not None
        if copies is not None:
            self._distributed_container = copies

    def handles(self, num: int) -> "list[ImaginedHandle]":
        """Returns a handle for each of `num` devices.

        They are one object if the tensor has neither copies nor parts.
        """
        if self.is_copied:
            return [ImaginedHandle(self, place) for place in range(num)]
        return [ImaginedHandle(self, 0)] * num


class ImaginedHandle:
    """A device's handle of an `ImaginedVariable`.

    Attributes:
        place: Integer, number of the device.
    """

    def __init__(self, variable: ImaginedVariable, place: int) -> None:
        self.variable = variable
        self.place = place
        self.dtype: Any = variable.tensor.dtype
