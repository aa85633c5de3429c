"""Passes on programs, a file for each, and the program that they begin with.

`lowering/all_passes.py` lists all passes in their order, and what each does.
"""

import dataclasses

from kerasmgpu import _import_on_use
from kerasmgpu.partitioner.ir.exchanges import LookUp
from kerasmgpu.partitioner.ir.instructions import (
    Constant,
    Instruction,
    Operation,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region, values
from kerasmgpu.partitioner.passes.group_sums import levels
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import REPLICATED
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait

_import_on_use(__name__)


def with_instructions(program: Lowered) -> Lowered:
    """Adds the instructions of a planned graph, as they are before any pass.

    Each operation takes values in the kinds that its plan wants, even if no
    instruction makes these values yet; see `insert_reshards`.
    """
    program.levels = levels(program.graph, program.plans)
    program.instructions = [
        instruction_of(node, program)
        for node in sorted(program.graph.nodes, key=program.levels.__getitem__)
        # Known sizes are written where they are needed.
        if node.type != "Input" and not is_known(node)
    ]
    return program


def instruction_of(node: Node, program: Lowered) -> Instruction:
    """Returns the instruction of a node as `with_instructions` adds it."""
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
        form = dataclasses.replace(
            program.form,
            is_compiled=program.compiles(node),
            assigns_last=False,
        )
        name = f"{node.name} {number}"
        lowered = Lowered(
            name, body, inner, program.mesh, given, outputs, form=form
        )
        bodies.append(with_instructions(lowered))
    return bodies
