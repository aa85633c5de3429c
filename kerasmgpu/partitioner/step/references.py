"""References to tensors of a function that is being written."""

import tensorflow as tf


class Reference(str):
    """A reference to a tensor: its name, its type, and where it is.

    It is the string that a `NodeDef` has as an input: `"node:output:0"`, or the
    name of an argument of the function. It compares and hashes as this string;
    type and device are ignored.

    It keeps the device and not the place, because a place is a number in one
    mesh, and a function is written on two: that of devices, and that of their
    micro-batches.

    Args:
        device: Name of the device of its node; `None` for an argument.
        is_on_host: Whether it is at the place `HOST`. The device does not tell:
            a replica can be on the same CPU.
    """

    __slots__ = ("dtype", "device", "is_on_host", "node")

    dtype: tf.DType
    device: str | None
    is_on_host: bool
    node: str

    def __new__(
        cls,
        name: str,
        dtype: tf.DType,
        device: str | None = None,
        is_on_host: bool = False,
    ) -> "Reference":
        reference = str.__new__(cls, name)
        reference.dtype = dtype
        reference.device = device
        reference.is_on_host = is_on_host
        reference.node = name.partition(":")[0]
        return reference
