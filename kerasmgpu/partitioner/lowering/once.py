"""Finds the nodes that run once for all replicas, on the first one's device.

They get XLA clusters of their own, as if they were on another device. What is
left on the first replica's device is then what all others run, too, and one
compiled function serves them all.
"""

from kerasmgpu.partitioner.ir.exchanges import AllToAll, LookUp, ToOwners
from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    FirstOnly,
    Instruction,
    JoinAgain,
    Operation,
    ReduceScatter,
    Runs,
    SendRows,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.ir.micro_batches import (
    Accumulate,
    FirstMicroBatchOnly,
)
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.writing import Nodes
from kerasmgpu.partitioner.step.definitions import node_name

_ON_EACH = (
    Accumulate,
    AllToAll,
    FirstMicroBatchOnly,
    FirstOnly,
    JoinAgain,
    LookUp,
    SendRows,
    ToOwners,
)


def runs_once(program: Lowered, instruction: Instruction) -> bool | None:
    """Whether an instruction's nodes on the first device run once.

    Returns:
        Boolean; `None` where the inputs of each node tell (`nodes_of_once`),
        and where it doesn't matter: XLA compiles nothing, or there is only one
        device.
    """
    if not program.form.is_compiled or len(set(program.mesh.devices)) == 1:
        return None
    if isinstance(instruction, (Operation, Region)):
        if instruction.runs is Runs.TOGETHER:
            return None
        return instruction.runs is Runs.ONCE
    if isinstance(instruction, _ON_EACH):
        return False
    if isinstance(instruction, (AllGather, ReduceScatter)):
        return None if program.mesh.shares_memory else False
    return None


def nodes_of_once(build: Function, nodes: Nodes) -> set[str]:
    """Returns names of the nodes on the first replica's device that run once.

    For nodes of which `runs_once` says nothing, such as those of an all-reduce,
    the inputs tell: one comes from another device, or all come from nodes that
    run once.

    Args:
        nodes: Its nodes in topological order, without dead ones.

    Returns:
        Set of names; empty if XLA compiles nothing, or on one device.
    """
    first, writer = build.mesh.devices[0], build.writer
    if not build.program.form.is_compiled or len(set(build.mesh.devices)) == 1:
        return set()
    once: set[str] = set()
    for name, node in nodes.items():
        if node.device != first or name in writer.on_host:
            continue
        is_once = writer.of_once.get(name)
        if name in build.twins:
            # It runs once if other replicas' copies of it are dead.
            is_once = not all(twin in nodes for twin in build.twins[name])
        elif is_once is None:
            sources = [
                source
                for source in map(node_name, node.input)
                if source in nodes
                and source not in writer.on_host
                and nodes[source].op != "Const"
            ]
            is_once = bool(sources) and (
                any(nodes[source].device != first for source in sources)
                or once.issuperset(sources)
            )
        if is_once:
            once.add(name)
    return once
