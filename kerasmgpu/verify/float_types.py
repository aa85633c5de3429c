"""The float types in which a model computes."""

import keras

from kerasmgpu.partitioner.step.graph import Graph, Tensor
from kerasmgpu.partitioner.step.records import Trait

FLOATS = ("bfloat16", "float16", "float32", "float64")
"""Float types, from the least precise to the most precise one."""


def dtype_of(model: keras.Model) -> str:
    """Returns the least precise float type that a layer computes in."""
    used = {layer.compute_dtype for layer in model.layers}
    return next((name for name in FLOATS if name in used), "float32")


def types_of_weights(graph: Graph) -> set[str]:
    """Returns the float types in which operations on weights compute.

    Not those of random numbers or of the batch only: they don't round
    differently on replicas.
    """
    types: set[str] = set()
    reached: set[Tensor] = set()
    for node in graph.nodes:
        of_weights = Trait.READS in node.traits or bool(node.bodies)
        if of_weights or not reached.isdisjoint(node.inputs):
            reached.update(
                tensor for tensor in node.outputs if tensor.dtype.name in FLOATS
            )
            types |= {tensor.dtype.name for tensor in node.outputs}
        for body in node.bodies:
            types |= types_of_weights(body)
    return types.intersection(FLOATS)
