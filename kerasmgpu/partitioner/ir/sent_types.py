"""What collectives send at once, and in which type: TensorFlow's take few."""

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Sharded, is_of_variable
from kerasmgpu.partitioner.step.graph import Tensor

BYTES_PER_PACK = 25 << 20
"""Bytes of a pack of values that are reduced as one, so that sending a pack
overlaps computing the next (the default of PyTorch's `DistributedDataParallel`,
Li et al., VLDB 2020)."""

LARGE = BYTES_PER_PACK >> 3
"""Bytes from which on a value is reduced by itself: packing and unpacking it
copies it, which takes longer than starting a collective."""

_SENDABLE = {
    tf.bfloat16,
    tf.float16,
    tf.float32,
    tf.float64,
    tf.int32,
    tf.int64,
}
"""Types with collective kernels."""

SENT_AS = {
    tf.bool: tf.int32,
    tf.int8: tf.int32,
    tf.int16: tf.int32,
    tf.uint8: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
}
"""Types without collective kernels, and the types their values are cast to."""

GATHERED_AS = {
    tf.bfloat16: tf.float32,  # `CollectiveGatherV2` has no kernel for it.
    tf.float16: tf.float16,
    tf.float32: tf.float32,
    tf.float64: tf.float64,
    tf.int32: tf.int32,
    tf.int64: tf.int64,
}
"""Types of sharded variables that are gathered by an all-gather, and the types
in which they are sent; others are gathered by a sum."""


def may_differ(mesh: Mesh, tensor: Tensor) -> bool:
    """Whether a replicated value may differ between workers by rounding."""
    return mesh.num_workers > 1 and (
        tensor.dtype in _SENDABLE or tensor.dtype in SENT_AS
    )


def has_parts(mesh: Mesh, tensor: Tensor, sharded: Sharded) -> bool:
    """Whether rows are parts of a variable that are gathered as they are.

    Between workers they have known sizes, and a type that can be gathered.
    """
    if not is_of_variable(sharded) or sharded.outer != 1:
        return False
    is_static = tensor.num_bytes < float("inf")
    return mesh.num_workers == 1 or is_static and tensor.dtype in GATHERED_AS


def type_to_send(tensor: Tensor) -> tf.DType:
    """The type in which collectives send a tensor's values.

    Raises:
        InputError: If it holds no numbers.
    """
    sent = SENT_AS.get(tensor.dtype, tensor.dtype)
    if sent not in _SENDABLE:
        raise InputError(
            "Replicas can only send each other numbers. Received: "
            f"{tensor.node.type} {tensor.node.name!r} of type "
            f"{tensor.dtype.name}, whose rows an operation needs from all "
            "replicas; convert it to numbers in the data set or in a layer such "
            "as keras.layers.StringLookup, or run on one worker."
        )
    return sent
