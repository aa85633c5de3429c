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


def types_of_weights(graph: Graph, is_given: bool = False) -> set[str]:
    """Returns the float types in which operations on weights compute.

    Not those of random numbers or of the batch only: they don't round
    differently on replicas.

    Args:
        is_given: Whether the graph's inputs are computed from weights.
    """
    types: set[str] = set()
    reached: set[Tensor] = set(graph.inputs if is_given else ())
    for node in graph.nodes:
        of_weights = not reached.isdisjoint(node.inputs)
        inner = [types_of_weights(body, of_weights) for body in node.bodies]
        if of_weights or any(inner) or Trait.READS in node.traits:
            floats = [t for t in node.outputs if t.dtype.name in FLOATS]
            reached.update(floats)
            types |= {tensor.dtype.name for tensor in floats}
        types = types.union(*inner)
    return types
