"""Late passes on a written function: order, turns and XLA clusters."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.compilation import compile_clusters
from kerasmgpu.partitioner.lowering.turns import assign_last, take_turns


def finish(
    build: Build, name: str, outputs: Sequence[tuple[str, tf.DType]]
) -> function_pb2.FunctionDef:
    """Orders what is written, forms the XLA clusters, returns the function.

    Args:
        build: `building.Build` of the function, with all its nodes written.
        name: Its name.
        outputs: List of `(reference, dtype)`.
    """
    if build.takes_turns:
        build.order_collectives()
    references = [reference for reference, _ in outputs]
    take_turns(build, references)
    if build.assigns_last:
        assign_last(build, references)
    references = compile_clusters(build, references)
    types = [dtype for _, dtype in outputs]
    return build.writer.function(name, list(zip(references, types)))
