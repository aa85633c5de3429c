"""The order in which TensorFlow's executor runs a program's instructions.

An executor keeps a queue of nodes that are ready, and takes the first:
instructions run in the order in which they become ready, and not in that in
which they are written (`ExecutorState::Process` in TensorFlow's `executor.cc`).
Other threads may run expensive kernels on CPUs meanwhile, which is not
modelled; on GPUs one thread starts all kernels.
"""

import collections
import dataclasses

from kerasmgpu.partitioner.graph import Node
from kerasmgpu.partitioner.ir.instructions import (
    AllReduce,
    Instruction,
    Operation,
    Region,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered


def executor_order(program: Lowered) -> list[Instruction]:
    """Returns the instructions of a program in the order of their execution.

    An all-reduce of several values is several instructions here: values are
    sent as soon as they are there.
    """
    instructions = [
        part for one in program.instructions for part in _parts(one)
    ]
    makers: dict[Value, int] = {}
    of_node: dict[Node, int] = {}
    for number, instruction in enumerate(instructions):
        for one in instruction.outputs:
            makers.setdefault(one, number)
        if isinstance(instruction, (Operation, Region)):
            of_node[instruction.node] = number
    followers: dict[int, list[int]] = collections.defaultdict(list)
    missing = [0] * len(instructions)
    readers: dict[Value, list[int]] = collections.defaultdict(list)
    for number, instruction in enumerate(instructions):
        for one in instruction.inputs:
            if one in makers:
                followers[makers[one]].append(number)
            else:
                readers[one].append(number)
            missing[number] += 1
        for earlier in _controls(instruction, of_node):
            followers[earlier].append(number)
            missing[number] += 1
    # The arguments of a function are the first nodes that are ready.
    queue = collections.deque(
        number for number, count in enumerate(missing) if not count
    )
    for one in program.given:
        for number in readers.pop(one, ()):
            missing[number] -= 1
            if not missing[number]:
                queue.append(number)
    order = []
    while queue:
        number = queue.popleft()
        order.append(instructions[number])
        for following in followers[number]:
            missing[following] -= 1
            if not missing[following]:
                queue.append(following)
    return order


def _parts(instruction: Instruction) -> list[Instruction]:
    if not isinstance(instruction, AllReduce):
        return [instruction]
    return [
        dataclasses.replace(instruction, inputs=(given,), outputs=(made,))
        for given, made in zip(instruction.inputs, instruction.outputs)
    ]


def _controls(instruction: Instruction, of_node: dict[Node, int]) -> list[int]:
    """Numbers of the instructions that must have run before."""
    if not isinstance(instruction, (Operation, Region)):
        return []
    return [
        of_node[control]
        for control in instruction.node.controls
        if control in of_node
    ]
