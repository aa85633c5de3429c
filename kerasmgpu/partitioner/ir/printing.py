"""Programs as text, one line for each instruction.

A line reads like one of an assembler: what is made, by what, from what, where.

    dense/MatMul:0 sharded on axis 0 = MatMul(images:0 sharded on axis 0,
        dense/ReadVariableOp:0 replicated) on each replica
"""

from kerasmgpu.partitioner.graph import Graph, Tensor
from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.planning import Plans


def graph_text(graph: Graph, plans: Plans | None = None) -> str:
    """A graph of the one-device step, with its plan where there is one."""
    return "\n".join(_graph_lines(graph, plans, "")) + "\n"


def program_text(program: Lowered) -> str:
    """A program, with its loops and branches indented."""
    return "\n".join(_program_lines(program, "")) + "\n"


def _graph_lines(graph: Graph, plans: Plans | None, indent: str) -> list[str]:
    lines = [f"{indent}input {_typed(tensor)}" for tensor in graph.inputs]
    for node in graph.nodes:
        if node.type == "Input":
            continue
        made = ", ".join(map(_typed, node.outputs))
        arguments = ", ".join(map(str, node.inputs))
        line = f"{made} = {node.type}({arguments})"
        if node.controls:
            line += f" after {', '.join(c.name for c in node.controls)}"
        plan = plans and plans.nodes.get(node)
        if plan:
            wants = ", ".join(map(str, plan.wants))
            gives = ", ".join(map(str, plan.gives))
            line += f"  # ({wants}) -> ({gives})"
            line += "" if plan.rule else ", no rule"
        lines.append(indent + line)
        details = (plan and plan.details) or [None] * len(node.bodies)
        for number, (body, inner) in enumerate(zip(node.bodies, details)):
            lines.append(f"{indent}  body {number}:")
            lines += _graph_lines(body, inner, indent + "    ")
    lines += [f"{indent}return {tensor}" for tensor in graph.outputs]
    return lines


def _program_lines(program: Lowered, indent: str) -> list[str]:
    lines = [f"{indent}given {_value(one)}" for one in program.given]
    for instruction in program.instructions:
        lines.append(indent + _line(instruction))
        if isinstance(instruction, ir.Region):
            for number, body in enumerate(instruction.bodies):
                lines.append(f"{indent}  body {number}:")
                lines += _program_lines(body, indent + "    ")
    lines += [f"{indent}return {_value(one)}" for one in program.outputs]
    return lines


def _line(instruction: ir.Instruction) -> str:
    name, notes = type(instruction).__name__, []
    if isinstance(instruction, (ir.Operation, ir.Region)):
        name = instruction.node.type
        notes.append(instruction.runs.value)
    if isinstance(instruction, ir.Operation) and instruction.is_guarded:
        notes.append("guarded")
    if isinstance(instruction, ir.Communication):
        name = instruction.name
        if isinstance(instruction, ir.AllReduce):
            name += f".{instruction.by}"
        sent = [
            f"{elements} x {bytes_each} bytes"
            for _, elements, bytes_each in instruction.sizes()
        ]
        notes.append(" + ".join(sent))
    made = ", ".join(map(_value, instruction.outputs))
    arguments = ", ".join(map(_value, instruction.inputs))
    equals = " = " if made else ""
    return f"{made}{equals}{name}({arguments})  {'; '.join(notes)}".rstrip()


def _value(one: ir.Value) -> str:
    return f"{one.tensor} {' | '.join(map(str, one.placement))}"


def _typed(tensor: Tensor) -> str:
    shape = "?" if tensor.shape is None else list(tensor.shape)
    return f"{tensor} {tensor.dtype.name}{shape}"
