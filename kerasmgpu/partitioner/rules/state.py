"""Variables and other state.

Each replica has a copy of a variable. Assigned values are replicated, so copies
stay equal to the bit. A variable that TensorFlow sums when it is read (a metric's)
holds a partial sum on each replica: its handle and its reads are partial. Of a
sharded variable (`sharded_variable.py`) each replica holds a part: its handle and
its reads are sharded.
"""

from collections.abc import Sequence

import tensorflow as tf

from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    Partial,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.protocols import Inference
from kerasmgpu.partitioner.rules.table import Emit, Plan
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape


def read(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Partial or sharded as the variable is."""
    if kinds[0] == PARTIAL or isinstance(kinds[0], Sharded):
        return Plan((kinds[0],), (kinds[0],))
    return Plan((REPLICATED,), (REPLICATED,))


def assign(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(variable, value)`: the value is wanted as the variable is."""
    if isinstance(kinds[0], Sharded):
        return Plan((kinds[0], kinds[0]), ())
    handle = PARTIAL if isinstance(kinds[0], Partial) else REPLICATED
    return Plan((handle, handle), ())


def apply(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """An optimizer's kernel: elementwise in variables, slots and gradient."""
    sharded = next((k for k in kinds if isinstance(k, Sharded)), None)
    if sharded is None or not is_of_variable(sharded):
        return None
    wants: list[Kind] = []
    for tensor, kind in zip(node.inputs, kinds):
        if tensor.dtype == tf.resource:
            if kind != sharded:
                return None
            wants.append(kind)
        else:
            wants.append(REPLICATED if tensor.rank == 0 else sharded)
    return Plan(tuple(wants), tuple(sharded for _ in node.outputs))


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


def _read_facts(node: Node, inference: Inference) -> None:
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
ResourceApplyProximalGradientDescent ResourceApplyRMSProp
""".split(),
    plan=apply,
    traits={Trait.COPIED, Trait.UPDATES},
)

operation(
    *"""
ResourceScatterAdd ResourceScatterDiv ResourceScatterMax ResourceScatterMin
ResourceScatterMul ResourceScatterSub ResourceScatterUpdate
ResourceSparseApplyAdadelta ResourceSparseApplyAdagrad
ResourceSparseApplyAdagradV2 ResourceSparseApplyFtrl
ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
ResourceSparseApplyRMSProp
""".split(),
    plan=tables.update,
    traits={Trait.COPIED, Trait.UPDATES},
)

operation(
    *"""
ResourceScatterNdAdd ResourceScatterNdMax ResourceScatterNdMin
ResourceScatterNdSub ResourceScatterNdUpdate ResourceStridedSliceAssign
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


def is_initialized(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """All parts of a sharded variable are initialised."""
    if not is_of_variable(kinds[0]):
        return None
    return Plan((kinds[0],), (REPLICATED,))


operation(
    "VarIsInitializedOp",
    plan=is_initialized,
    traits={Trait.COPIED, Trait.READ_ONLY},
)


def variable_shape(node: Node) -> Shape | None:
    """The variable's shape, where it is static."""
    element = node.inputs[0].element
    if not isinstance(element, tuple) or None in element:
        return None
    return element


def whole_shape(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """The whole shape of a sharded variable, whose parts are smaller."""
    if not is_of_variable(kinds[0]):
        return None
    return Plan((kinds[0],), (REPLICATED,), Emit.WHOLE_SHAPE)


operation(
    "VariableShape",
    plan=whole_shape,
    value=variable_shape,
    traits={Trait.COPIED, Trait.READ_ONLY},
)
