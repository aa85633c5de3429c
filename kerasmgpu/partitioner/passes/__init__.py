"""Passes that lower a planned graph to a program that can be written.

group_sums.py          levels of sums; parts summed at once are one reduction
insert_reshards.py     a `Reshard` wherever a placement changes
lower_reshards.py      reshards become communication, slices, recomputation
place_regions.py       who runs a loop or branch
agree.py               workers take the first one's value
place_operations.py    what runs on each replica, and what once
guard_empty_shares.py  kernels that must not see a share without rows
scatter_early.py       gradients are reduce-scattered as they are made
order_gathers.py       at most two gathered weights are whole at a time
localise_sizes.py      workers gather each other's numbers of rows
cluster_for_xla.py     what XLA compiles as one function, of the written nodes
lower_micro_batches.py what runs for each micro-batch, and what once per device
order_micro_batches.py whose turn it is on a device; order_gathers.py then has
                       weights gathered in each phase
dump.py                the program after each pass, as files
"""

from collections.abc import Callable, Sequence

from kerasmgpu import _import_on_use
from kerasmgpu.partitioner.ir.exchanges import LookUp
from kerasmgpu.partitioner.ir.instructions import (
    Constant,
    Instruction,
    Operation,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region, values
from kerasmgpu.partitioner.ir.printing import program_text
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.passes.agree import agree
from kerasmgpu.partitioner.passes.dump import Dump
from kerasmgpu.partitioner.passes.group_sums import group_sums, levels
from kerasmgpu.partitioner.passes.guard_empty_shares import guard_empty_shares
from kerasmgpu.partitioner.passes.insert_reshards import insert_reshards
from kerasmgpu.partitioner.passes.localise_sizes import localise_sizes
from kerasmgpu.partitioner.passes.lower_micro_batches import (
    lower_micro_batches,
)
from kerasmgpu.partitioner.passes.lower_reshards import lower_reshards
from kerasmgpu.partitioner.passes.order_gathers import (
    gather_in_turns,
    order_gathers,
)
from kerasmgpu.partitioner.passes.order_micro_batches import (
    order_micro_batches,
)
from kerasmgpu.partitioner.passes.place_operations import place_operations
from kerasmgpu.partitioner.passes.place_regions import place_regions
from kerasmgpu.partitioner.passes.scatter_early import scatter_early
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import REPLICATED
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record

_import_on_use(__name__)


def lower(
    program: Lowered, copied: frozenset[Value], is_compiled: bool, dump: Dump
) -> None:
    """Runs all passes on a program.

    Args:
        program: As `unlowered` makes it.
        copied: Inputs of which each replica has a reference of its own.
        is_compiled: Whether XLA will compile what each replica does.
        dump: Writes the program after each pass, where that is asked for.
    """
    passes: list[tuple[str, Callable[[Lowered], None]]] = [
        ("insert_reshards", insert_reshards),
        ("lower_reshards", lower_reshards),
        ("scatter_early", scatter_early),
        ("group_sums", group_sums),
        ("place_regions", place_regions),
        ("agree", agree),
        ("place_operations", lambda p: place_operations(p, copied)),
        ("guard_empty_shares", lambda p: guard_empty_shares(p, is_compiled)),
        ("order_gathers", order_gathers),
        ("localise_sizes", localise_sizes),
    ]
    if program.mesh.micro_batches > 1:
        passes += [
            ("lower_micro_batches", lower_micro_batches),
            ("order_micro_batches", order_micro_batches),
            ("gather_in_turns", gather_in_turns),
        ]
    for name, run in passes:
        run(program)
        dump(name, lambda: program_text(program))


def unlowered(
    name: str,
    graph: Graph,
    plans: Plans,
    mesh: Mesh,
    given: Sequence[Value],
    outputs: Sequence[Value],
    grouped: Sequence[Tensor] = (),
) -> Lowered:
    """A planned graph as a program, in which every value is as it is needed.

    Nothing makes the values yet that differ from what operations make; see
    `insert_reshards`. Arguments are `Lowered`'s.
    """
    found = levels(graph, plans)
    program = Lowered(
        name, graph, plans, mesh, list(given), list(outputs), grouped
    )
    program.levels = found
    program.instructions = [
        _instruction(node, plans, mesh)
        for node in sorted(graph.nodes, key=found.__getitem__)
        # Known sizes are written where they are needed.
        if node.type != "Input" and not is_known(node)
    ]
    return program


def _instruction(node: Node, plans: Plans, mesh: Mesh) -> Instruction:
    if node.type == "Const":
        return Constant((), (value(node.outputs[0], REPLICATED),), node)
    plan = plans.nodes[node]
    inputs = tuple(values(node.inputs, plan.wants))
    outputs = tuple(values(node.outputs, plan.gives))
    if tables.is_exchanged(plan):
        return LookUp(inputs, outputs, node, plan)
    if not node.bodies:
        return Operation(inputs, outputs, node, plan)
    bodies = _bodies(node, plan, mesh)
    return Region(inputs, outputs, node, plan, bodies)


def _bodies(node: Node, plan: Plan, mesh: Mesh) -> list[Lowered]:
    """The programs of a loop's or branch's functions."""
    is_loop = Trait.LOOP in record(node.type).traits
    carried = plan.wants if is_loop else plan.wants[1:]
    bodies = []
    for number, (body, inner) in enumerate(zip(node.bodies, plan.details)):
        is_condition = is_loop and number == 0
        made = (REPLICATED,) if is_condition else plan.gives
        given = values(body.inputs, carried)
        outputs = values(body.outputs, made)
        name = f"{node.name} {number}"
        bodies.append(unlowered(name, body, inner, mesh, given, outputs))
    return bodies
