"""The order in which TensorFlow's executor runs a program's instructions.

An executor keeps a queue of nodes that are ready, and takes the first:
instructions run in the order in which they become ready, and not in that in
which they are written (`ExecutorState::Process` in TensorFlow's `executor.cc`).
On GPUs one thread starts all kernels in this order. On CPUs other threads may
run expensive kernels meanwhile, and a step on a single CPU device runs in an
order that changes from process to process: neither is modelled.
"""

import collections
import dataclasses
from collections.abc import Iterator

from kerasmgpu.partitioner.ir.instructions import (
    AllReduce,
    Instruction,
    Operation,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.step.graph import Node, Tensor


@dataclasses.dataclass
class Ordered:
    """A program in the order of its execution.

    Attributes:
        given: Its inputs.
        outputs: Its outputs.
        instructions: Its instructions. An all-reduce of several values is
            several instructions: values are sent as soon as they are there.
    """

    given: list[Value]
    outputs: list[Value]
    instructions: list[Instruction]


def executor_order(program: Lowered, num_replicas: int) -> Ordered:
    """Returns a program in the order of its execution.

    Args:
        program: `ir.lowered.Lowered`.
        num_replicas: Integer. On one replica nothing is communicated, and a
            tensor has one value, whatever its kind.
    """
    instructions = [
        part for one in program.instructions for part in _parts(one)
    ]
    ordered = Ordered(program.given, program.outputs, instructions)
    if num_replicas == 1:
        ordered = _on_one_replica(ordered)
    ordered.instructions = list(_by_readiness(ordered))
    return ordered


def _parts(instruction: Instruction) -> list[Instruction]:
    if not isinstance(instruction, AllReduce):
        return [instruction]
    return [
        dataclasses.replace(instruction, inputs=(given,), outputs=(made,))
        for given, made in zip(instruction.inputs, instruction.outputs)
    ]


def _on_one_replica(program: Ordered) -> Ordered:
    """Drops communication, and what is computed again in another kind."""
    first: dict[Tensor, Value] = {one.tensor: one for one in program.given}
    done: set[Node] = set()
    instructions = []

    def of_tensors(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(first.setdefault(one.tensor, one) for one in values)

    for instruction in program.instructions:
        if isinstance(instruction, (Operation, Region)):
            if instruction.node in done:
                continue
            done.add(instruction.node)
        elif all(one.tensor in first for one in instruction.outputs):
            continue
        instructions.append(
            dataclasses.replace(
                instruction,
                inputs=of_tensors(instruction.inputs),
                outputs=of_tensors(instruction.outputs),
            )
        )
    outputs = list(of_tensors(tuple(program.outputs)))
    return Ordered(program.given, outputs, instructions)


def _by_readiness(program: Ordered) -> Iterator[Instruction]:
    """Yields the instructions as the executor's queue does."""
    missing, followers, readers = _edges(program)
    queue = collections.deque(
        number for number, count in enumerate(missing) if not count
    )
    # The arguments of a function are the first nodes that are ready.
    ready = [number for one in program.given for number in readers[one]]
    while ready or queue:
        for number in ready:
            missing[number] -= 1
            if not missing[number]:
                queue.append(number)
        if queue:
            number = queue.popleft()
            yield program.instructions[number]
            ready = followers[number]
        else:
            ready = []


def _edges(
    program: Ordered,
) -> tuple[list[int], dict[int, list[int]], dict[Value, list[int]]]:
    """Edges between instructions.

    Returns:
        For each instruction the number of inputs and control inputs that it
        waits for; the instructions that wait for it; for each input of the
        program the instructions that wait for it.
    """
    makers: dict[Value, int] = {}
    of_node: dict[Node, int] = {}
    for number, instruction in enumerate(program.instructions):
        for one in instruction.outputs:
            makers.setdefault(one, number)
        if isinstance(instruction, (Operation, Region)):
            of_node[instruction.node] = number
    missing = [0] * len(program.instructions)
    followers: dict[int, list[int]] = collections.defaultdict(list)
    readers: dict[Value, list[int]] = collections.defaultdict(list)
    for number, instruction in enumerate(program.instructions):
        for one in instruction.inputs:
            if one in makers:
                followers[makers[one]].append(number)
            else:
                readers[one].append(number)
        controls = []
        if isinstance(instruction, (Operation, Region)):
            controls = instruction.node.controls
        earlier = [of_node[node] for node in controls if node in of_node]
        for other in earlier:
            followers[other].append(number)
        missing[number] = len(instruction.inputs) + len(earlier)
    return missing, followers, readers
