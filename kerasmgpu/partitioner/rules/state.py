"""Variables and other state.

Each replica has a copy of a variable. Assigned values are replicated, so copies
stay equal to the bit. A variable that TensorFlow sums when it is read (a
metric's) holds a partial sum on each replica: its handle and its reads are
partial. A sharded variable (`sharded_variable.py`) holds a part on each
replica: its handle and its reads are sharded.
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
    """Plans a read: the value has the kind of the variable's handle."""
    if kinds[0] == PARTIAL or isinstance(kinds[0], Sharded):
        return Plan((kinds[0],), (kinds[0],))
    return Plan((REPLICATED,), (REPLICATED,))


def assign(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans an assignment, `(variable, value)`; both have the same kind."""
    if isinstance(kinds[0], Sharded):
        return Plan((kinds[0], kinds[0]), ())
    handle = PARTIAL if isinstance(kinds[0], Partial) else REPLICATED
    return Plan((handle, handle), ())


def apply(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans an optimizer's kernel on each replica's parts of variables.

    Variables, slots and gradient are sharded alike, as the kernel is
    elementwise. Returns `None` if the variables aren't sharded, or not alike.
    """
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
    """Sets the output's shape, if it is unknown, to the variable's."""
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
    """Plans a check of a sharded variable: all of its parts are initialised.

    Returns `None` for other variables.
    """
    if not is_of_variable(kinds[0]):
        return None
    return Plan((kinds[0],), (REPLICATED,))


operation(
    "VarIsInitializedOp",
    plan=is_initialized,
    traits={Trait.COPIED, Trait.READ_ONLY},
)


def variable_shape(node: Node) -> Shape | None:
    """Returns the variable's shape; `None` if it isn't static."""
    element = node.inputs[0].element
    if not isinstance(element, tuple) or None in element:
        return None
    return element


def whole_shape(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans the shape of a whole sharded variable, not of a replica's part.

    Returns `None` for other variables.
    """
    if not is_of_variable(kinds[0]):
        return None
    return Plan((kinds[0],), (REPLICATED,), Emit.WHOLE_SHAPE)


operation(
    "VariableShape",
    plan=whole_shape,
    value=variable_shape,
    traits={Trait.COPIED, Trait.READ_ONLY},
)
