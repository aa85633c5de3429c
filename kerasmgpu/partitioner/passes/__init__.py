"""Passes on programs, a file for each, and the program that they begin with.

`lowering/all_passes.py` lists all passes in their order, and what each does.
"""

from collections.abc import Sequence

from kerasmgpu import _import_on_use
from kerasmgpu.partitioner.ir.exchanges import LookUp
from kerasmgpu.partitioner.ir.instructions import (
    Constant,
    Instruction,
    Operation,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region, values
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.passes.group_sums import levels
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import REPLICATED
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait

_import_on_use(__name__)


def unlowered(
    name: str,
    graph: Graph,
    plans: tuple[Plans, ...],
    mesh: Mesh,
    given: Sequence[Value],
    outputs: Sequence[Value],
    grouped: Sequence[Tensor] = (),
    is_compiled: bool = False,
    is_beside: bool = False,
) -> Lowered:
    """Returns the program of a planned graph, as it is before any pass.

    Each operation takes values in the kinds that its plan wants, even if no
    instruction makes these values yet; see `insert_reshards`. Arguments are
    those of `Lowered`.
    """
    found = levels(graph, plans)
    program = Lowered(
        name,
        graph,
        plans,
        mesh,
        list(given),
        list(outputs),
        grouped,
        is_compiled,
        is_beside,
    )
    program.levels = found
    program.instructions = [
        instruction_of(node, program)
        for node in sorted(graph.nodes, key=found.__getitem__)
        # Known sizes are written where they are needed.
        if node.type != "Input" and not is_known(node)
    ]
    return program


def instruction_of(node: Node, program: Lowered) -> Instruction:
    """Returns the instruction of a node as `unlowered` has it."""
    if node.type == "Const":
        return Constant((), (program.whole(node.outputs[0]),), node)
    plans = tuple(of_axis.nodes[node] for of_axis in program.plans)
    inputs = tuple(values(node.inputs, [plan.wants for plan in plans]))
    outputs = tuple(values(node.outputs, [plan.gives for plan in plans]))
    for axis, plan in enumerate(plans):
        if tables.is_exchanged(plan):
            return LookUp(inputs, outputs, node, axis)
    if not node.bodies:
        return Operation(inputs, outputs, node, plans)
    bodies = _bodies(node, plans, program)
    return Region(inputs, outputs, node, plans, bodies)


def _bodies(
    node: Node, plans: tuple[Plan, ...], program: Lowered
) -> list[Lowered]:
    """Returns the programs of a loop's or branch's functions, in order."""
    is_loop = Trait.LOOP in node.traits
    carried = [plan.wants if is_loop else plan.wants[1:] for plan in plans]
    bodies = []
    of_bodies = zip(*(plan.details for plan in plans))
    for number, (body, inner) in enumerate(zip(node.bodies, of_bodies)):
        # A loop's first body is its condition: one boolean for all replicas.
        is_condition = is_loop and number == 0
        made = [(REPLICATED,) if is_condition else plan.gives for plan in plans]
        given = values(body.inputs, carried)
        outputs = values(body.outputs, made)
        bodies.append(
            unlowered(
                f"{node.name} {number}",
                body,
                inner,
                program.mesh,
                given,
                outputs,
                is_compiled=program.compiles(node),
                is_beside=program.is_beside,
            )
        )
    return bodies
