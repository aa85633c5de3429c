"""Decides where a loop or branch runs, by the instructions inside.

If no instruction inside needs values of other replicas, it is a function of one
replica: called once if all values are whole, and else on each replica.
Otherwise it is one function of all replicas, with communication inside.
"""

from kerasmgpu.partitioner.ir.instructions import Operation, Runs
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait


def place_regions(program: Lowered) -> None:
    """Sets `runs` of each region; of its bodies, the mesh and `offloaded`."""
    for region in program.regions:
        together = needs_all_replicas(region) or _has_updates(region.node)
        if program.mesh.micro_batches > 1:
            together = together or _reads_parts(region)
        # On one replica, too, a body updates variables on two devices.
        is_offloaded = not program.offloaded.isdisjoint(region.inputs)
        if together and (program.mesh.total > 1 or is_offloaded):
            region.runs = Runs.TOGETHER
        elif _is_local(region):
            region.runs = Runs.ON_EACH
        else:
            region.runs = Runs.ONCE
        inside = program.mesh
        if region.runs is not Runs.TOGETHER:
            inside = inside.alone()
        carried = region.inputs[0 if region.is_loop else 1 :]
        for body in region.bodies:
            body.mesh = inside
            body.offloaded = frozenset(
                given
                for given, one in zip(body.given, carried)
                if one in program.offloaded
            )
            place_regions(body)


def needs_all_replicas(region: Region) -> bool:
    """Whether a loop or branch can't run in a function of one replica."""
    return any(
        instruction.needs_all_replicas
        or isinstance(instruction, Operation)
        # It runs once for all replicas, as a print or draw must.
        and instruction.node.is_stateful
        and Trait.COPIED not in instruction.node.traits
        for body in region.bodies
        for instruction in body.all_instructions()
    )


def _reads_parts(region: Region) -> bool:
    """Whether a body reads, or looks up, what a device has only a part of.

    Only the device's first micro-batch has that part.
    """
    return any(
        isinstance(instruction, Operation)
        and {Trait.COPIED, Trait.READ_ONLY} <= instruction.node.traits
        and instruction.inputs[0].is_local
        for body in region.bodies
        for instruction in body.all_instructions()
    )


def _is_local(region: Region) -> bool:
    """Whether values inside a region differ between replicas."""
    return any(plan.is_local for plan in region.plans) or any(
        one.is_local
        for body in region.bodies
        for instruction in body.all_instructions()
        for one in (*instruction.inputs, *instruction.outputs)
    )


def _has_updates(node: Node) -> bool:
    """Whether a body of a node changes variables.

    If each replica ran it, a variable without copies would change several
    times.
    """
    return any(
        {Trait.COPIED, Trait.READ_ONLY} & inner.traits == {Trait.COPIED}
        or _has_updates(inner)
        for body in node.bodies
        for inner in body.nodes
    )
