"""Variables and other state.

A variable has a copy on each replica. What is assigned is whole, so copies stay
the same to the bit. A variable that TensorFlow sums when it is read (a metric's)
holds a part on each replica: its handle is partial, and so is what is read.
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
    """Partial where the variable is a sum over the replicas."""
    if kinds[0] == PARTIAL:
        return Plan((PARTIAL,), (PARTIAL,))
    return Plan((REPLICATED,), (REPLICATED,))


def assign(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(variable, value)`: what is assigned to a partial variable is partial."""
    handle = PARTIAL if isinstance(kinds[0], Partial) else REPLICATED
    return Plan((handle, handle), ())


operation(
    "AssignVariableOp",
    plan=assign,
    traits={Trait.COPIED, Trait.OUTSIDE_XLA, Trait.UPDATES},
)

operation(
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    plan=assign,
    traits={Trait.COPIED, Trait.UPDATES},
)


def _read_facts(node: Node, inference: "Inference") -> None:
    """What is read has the shape that the variable is known to have."""
    if node.outputs[0].shape is None:
        node.outputs[0].shape = node.inputs[0].element


operation(
    "ReadVariableOp",
    plan=read,
    facts=_read_facts,
    traits={Trait.COPIED, Trait.READ_ONLY, Trait.OUTSIDE_XLA},
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
