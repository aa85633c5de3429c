"""Declares traits of operations that have no rule."""

from kerasmgpu.partitioner.rules.protocols import Inference
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation

operation("PartitionedCall", "StatefulPartitionedCall", traits={Trait.CALLS})


def asserted_facts(node: Node, inference: Inference) -> None:
    """Joins lengths that must be equal, as a loss asserts of its inputs."""
    condition = node.inputs[0].node
    if condition.type == "All":
        condition = condition.inputs[0].node
    if condition.type == "Equal":
        inference.join_lengths(*(one.value for one in condition.inputs))


operation(
    "Assert",
    facts=asserted_facts,
    traits={Trait.CHECKS, Trait.NO_RANDOM_STATE, Trait.NO_STATE},
)

operation(
    "DynamicPartition",
    "ListDiff",
    "UniqueV2",
    "UniqueWithCounts",
    "Where",
    traits={Trait.SIZED_BY_VALUES},
)

operation("Switch", traits={Trait.OUTSIDE_XLA})

operation("PrintV2", traits={Trait.NO_RANDOM_STATE})

operation(
    "EagerPyFunc",
    "PyFunc",
    "PyFuncStateless",
    traits={Trait.NO_RANDOM_STATE, Trait.RUNS_PYTHON},
)
