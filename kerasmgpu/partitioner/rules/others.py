"""Declares traits of operations that have no rule."""

from kerasmgpu.partitioner.step.records import Trait, operation

operation("PartitionedCall", "StatefulPartitionedCall", traits={Trait.CALLS})

operation(
    "Assert", traits={Trait.CHECKS, Trait.NO_RANDOM_STATE, Trait.NO_STATE}
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
