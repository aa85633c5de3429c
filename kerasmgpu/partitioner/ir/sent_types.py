"""Sizes and types in which collectives send: TensorFlow's take few types."""

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Sharded, is_of_variable
from kerasmgpu.partitioner.step.graph import Tensor

BYTES_PER_PACK = 25 << 20
"""Largest size in bytes of a pack, values that are reduced as one vector. A
pack is sent while the next one is computed (the default of PyTorch's
`DistributedDataParallel`, Li et al., VLDB 2020)."""

LARGE = BYTES_PER_PACK >> 3
"""Size in bytes from which on a value is reduced by itself: copying it into a
pack and out of it takes longer than starting a collective."""

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
"""Maps types without collective kernels to those that values are cast to."""

GATHERED_AS = {
    tf.bfloat16: tf.float32,  # `CollectiveGatherV2` has no kernel for it.
    tf.float16: tf.float16,
    tf.float32: tf.float32,
    tf.float64: tf.float64,
    tf.int32: tf.int32,
    tf.int64: tf.int64,
    tf.int8: tf.int32,  # Four elements each.
    tf.uint8: tf.int32,
}
"""Maps types of sharded variables to those in which an all-gather sends them;
variables of other types are gathered by a sum."""

BYTES_PER_WORD = 4
"""Elements of one byte each that are sent as one integer."""


def may_differ(mesh: Mesh, tensor: Tensor) -> bool:
    """Whether there are several workers, and a tensor's type can be sent.

    Replicated values of such tensors can differ between workers by rounding,
    and be broadcast.
    """
    return mesh.num_workers > 1 and (
        tensor.dtype in _SENDABLE or tensor.dtype in SENT_AS
    )


def has_parts(mesh: Mesh, one: Value) -> bool:
    """Whether a value's shards are parts of a variable, gathered as they are.

    Between workers, their sizes must be static and their type in `GATHERED_AS`;
    all other shards are padded, and gathered by a sum. On a mesh of several
    axes, of the shards along that of the rows.
    """
    kind = one.placement[0]
    if not isinstance(kind, Sharded) or not is_of_variable(kind):
        return False
    is_static = one.tensor.num_bytes < float("inf")
    return kind.outer == 1 and (
        mesh.num_workers == 1 or (is_static and one.tensor.dtype in GATHERED_AS)
    )


def type_to_send(tensor: Tensor) -> tf.DType:
    """Returns the type in which collectives send a tensor's values.

    Raises:
        InputError: If the tensor holds no numbers, but strings for instance.
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
