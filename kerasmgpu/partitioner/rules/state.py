"""Variables and other state.

Each replica has a copy of a variable. Assigned values are replicated, so copies
stay equal to the bit. A variable that TensorFlow sums when it is read (a metric's)
holds a partial sum on each replica: its handle and its reads are partial.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kerasmgpu.partitioner.graph import Node
from kerasmgpu.partitioner.kinds import PARTIAL, REPLICATED, Kind, Partial
from kerasmgpu.partitioner.records import Trait, operation
from kerasmgpu.partitioner.rules.table import Plan

if TYPE_CHECKING:
    from kerasmgpu.partitioner.facts import Inference


def read(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Partial if the variable is summed over the replicas."""
    if kinds[0] == PARTIAL:
        return Plan((PARTIAL,), (PARTIAL,))
    return Plan((REPLICATED,), (REPLICATED,))


def assign(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(variable, value)`: values assigned to a partial variable are partial."""
    handle = PARTIAL if isinstance(kinds[0], Partial) else REPLICATED
    return Plan((handle, handle), ())


operation(
    "AssignVariableOp",
    plan=assign,
    traits={Trait.ASSIGNS, Trait.COPIED, Trait.OUTSIDE_XLA, Trait.UPDATES},
)

operation(
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    plan=assign,
    traits={Trait.COPIED, Trait.UPDATES},
)


def _read_facts(node: Node, inference: "Inference") -> None:
    """The output has the variable's shape."""
    if node.outputs[0].shape is None:
        node.outputs[0].shape = node.inputs[0].element


operation(
    "ReadVariableOp",
    plan=read,
    facts=_read_facts,
    traits={Trait.COPIED, Trait.OUTSIDE_XLA, Trait.READS, Trait.READ_ONLY},
)


operation(
    *"""
ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdagrad
ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
ResourceApplyAdamWithAmsgrad ResourceApplyAddSign
ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2
ResourceApplyGradientDescent ResourceApplyKerasMomentum
ResourceApplyMomentum ResourceApplyPowerSign ResourceApplyProximalAdagrad
ResourceApplyProximalGradientDescent ResourceApplyRMSProp ResourceScatterAdd
ResourceScatterDiv ResourceScatterMax ResourceScatterMin ResourceScatterMul
ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
ResourceScatterNdSub ResourceScatterNdUpdate ResourceScatterSub
ResourceScatterUpdate ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad
ResourceSparseApplyAdagradV2 ResourceSparseApplyFtrl
ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
ResourceSparseApplyRMSProp ResourceStridedSliceAssign
""".split(),
    traits={Trait.COPIED, Trait.UPDATES},
)

operation(
    "RngReadAndSkip",
    "RngSkip",
    "StatefulStandardNormalV2",
    "StatefulUniform",
    traits={Trait.COPIED},
)

operation(
    "VarIsInitializedOp",
    "VariableShape",
    traits={Trait.COPIED, Trait.READ_ONLY},
)
