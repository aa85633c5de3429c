"""Programs as text, one line for each instruction.

A line says what is made, by what, from what, and where:

    dense/MatMul:0 S(0) = MatMul(images:0 S(0), kernel:0 R)  on each replica

Kinds are written as in DTensor: `R` is replicated, `S(0)` sharded on axis 0,
`P(sum)` a partial sum. `S(0, 2 * rows * 3)` is sharded by rows that are mixed
with other elements of the axis.
"""

from collections.abc import Iterable, Sequence

from tensorflow.core.framework import node_def_pb2

from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.lowered import Call, Lowered, Region, bodies_of
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules import kinds
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor, constant_array

_MOST_ELEMENTS = 6
"""Elements of the largest constant that is printed."""


def graph_text(graph: Graph, plans: Sequence[Plans] = ()) -> str:
    """Returns a graph of the one-device step as text, with its plans if given."""
    return "\n".join(_graph_lines(graph, plans, "")) + "\n"


def program_text(program: Lowered) -> str:
    """Returns a program as text, with its loops and branches indented."""
    return "\n".join(_program_lines(program, "")) + "\n"


def clusters_text(program: Lowered) -> str:
    """Returns the XLA clusters of a written program and its bodies as text."""
    lines = [f"clusters of {program.name}:"]
    for cluster in program.clusters:
        lines.append(f"  level {cluster.level} on {_device(cluster.device)}")
        lines.append(f"    calls {cluster.function}")
        lines.append(f"    takes {_passed(cluster.arguments)}")
        lines.append(f"    runs {', '.join(cluster.operations)}")
        lines.append(f"    returns {_passed(cluster.results)}")
    bodies = [body for region in program.regions for body in region.bodies]
    return "\n".join(lines) + "\n" + "".join(map(clusters_text, bodies))


def nodes_text(nodes: Iterable[node_def_pb2.NodeDef]) -> str:
    """Returns written nodes as text, in their order."""
    return "".join(f"{_written_line(node)}\n" for node in nodes)


def _written_line(node: node_def_pb2.NodeDef) -> str:
    given = ", ".join(one for one in node.input if one[0] != "^")
    after = ", ".join(one[1:] for one in node.input if one[0] == "^")
    line = f"{node.name} = {node.op}({given}){' after ' * bool(after)}{after}"
    return f"{line}  on {_device(node.device)}"


def _device(name: str) -> str:
    return name.rsplit("device:", 1)[-1]


def _passed(values: Sequence[ir.Value | str]) -> str:
    """Returns arguments or results of a cluster as text, with their bytes."""
    return ", ".join(
        one
        if isinstance(one, str)
        else f"{_value(one)} ({_elements(one.tensor.num_elements)} * "
        f"{one.tensor.dtype.size} bytes)"
        for one in values
    )


def _elements(number: object) -> object:
    return "?" if number is None else number


def _graph_lines(
    graph: Graph, plans: Sequence[Plans], indent: str
) -> list[str]:
    lines = [f"{indent}given {_typed(tensor)}" for tensor in graph.inputs]
    for node in graph.nodes:
        if node.type == "Input":
            continue
        lines.append(indent + _node_line(node, plans))
        own = [of_axis.nodes[node] for of_axis in plans if of_axis.nodes]
        for number, body in enumerate(node.bodies):
            inner = [plan.details[number] for plan in own]
            lines.append(f"{indent}  body {number}:")
            lines += _graph_lines(body, inner, indent + "    ")
    lines += [f"{indent}return {_name(one)}" for one in graph.outputs]
    return lines


def _node_line(node: Node, plans: Sequence[Plans]) -> str:
    made = ", ".join(map(_typed, node.outputs))
    arguments = ", ".join(map(_name, node.inputs)) or _constant(node)
    line = f"{made}{' = ' * bool(made)}{node.type}({arguments})"
    if node.controls:
        line += f" after {', '.join(control.name for control in node.controls)}"
    own = [of_axis.nodes[node] for of_axis in plans if node in of_axis.nodes]
    if own and node.type != "Const":
        wants = ", ".join(map(_kinds, zip(*(plan.wants for plan in own))))
        gives = ", ".join(map(_kinds, zip(*(plan.gives for plan in own))))
        has_rule = all(plan.rule for plan in own)
        line += f"  ({wants}) -> ({gives}){'' if has_rule else ', no rule'}"
    return line


def _program_lines(program: Lowered, indent: str) -> list[str]:
    lines = [f"{indent}given {_value(one)}" for one in program.given]
    for instruction in program.instructions:
        phase = program.phases.get(instruction)
        turn = "" if phase is None else f", phase {phase}"
        where = ", on the host" if instruction in program.on_host else ""
        lines.append(indent + _line(instruction, program.mesh) + turn + where)
        for number, body in enumerate(bodies_of(instruction)):
            lines.append(f"{indent}  body {number}:")
            lines += _program_lines(body, indent + "    ")
    lines += [f"{indent}return {_value(one)}" for one in program.outputs]
    return lines


def _line(instruction: ir.Instruction, mesh: Mesh) -> str:
    name, notes = type(instruction).__name__, []
    arguments = ", ".join(map(_value, instruction.inputs))
    if isinstance(instruction, ir.Constant):
        name, arguments = "Const", _constant(instruction.node)
    if isinstance(instruction, Call):
        notes.append(ir.Runs.ON_EACH.value)
    if isinstance(instruction, (ir.Operation, Region)):
        name = instruction.node.type
        if instruction.runs is not None:
            notes.append(instruction.runs.value)
    if isinstance(instruction, ir.Operation) and instruction.is_guarded:
        notes.append("guarded against no rows")
    if isinstance(instruction, ir.Communication):
        name = instruction.name
        if isinstance(instruction, ir.AllReduce):
            name += f".{instruction.by}"
        sent = [
            f"{_elements(elements)} * {bytes_each}"
            for _, elements, bytes_each in instruction.sizes(mesh)
        ]
        notes.append(f"{' + '.join(sent)} bytes")
        if getattr(instruction, "in_turns", False):
            notes.append("in each turn")
    made = ", ".join(map(_value, instruction.outputs))
    line = f"{made}{' = ' * bool(made)}{name}({arguments})"
    return f"{line}  {', '.join(notes)}".rstrip()


def _constant(node: Node) -> str:
    """Returns a constant's numbers, `...` if many; `""` for other nodes."""
    if node.type != "Const" or node.outputs[0].dtype.name == "string":
        return ""
    value = constant_array(node)
    return str(value.tolist()) if value.size <= _MOST_ELEMENTS else "..."


def _value(one: ir.Value) -> str:
    return f"{_name(one.tensor)} {_kinds(one.placement)}"


def _kinds(placement: kinds.Placement) -> str:
    """Returns the kinds on the axes of the mesh as text."""
    return " | ".join(map(_kind, placement))


def _name(tensor: Tensor) -> str:
    """Returns a tensor's name, with the prefix of inlined calls shortened."""
    return str(tensor).replace("StatefulPartitionedCall/", "call/")


def _kind(kind: kinds.Kind) -> str:
    """Returns a kind as text, such as `S(0)`."""
    if isinstance(kind, kinds.Replicated):
        return "R"
    if isinstance(kind, kinds.Sharded):
        name = "kept" if isinstance(kind, kinds.Kept) else "S"
        if isinstance(kind, kinds.PartlySummed):
            name = "partly summed, S"
        if kind.outer == kind.inner == 1:
            return f"{name}({kind.axis})"
        return f"{name}({kind.axis}, {kind.outer} * rows * {kind.inner})"
    if isinstance(kind, kinds.Partial):
        return f"P({kind.by})"
    if isinstance(kind, kinds.LocalSizes):
        return f"shape of {_kind(kind.sharded)}"
    return str(kind)


def _typed(tensor: Tensor) -> str:
    name = f"{_name(tensor)} {tensor.dtype.name}"
    if tensor.shape is None:
        return f"{name}[?]"
    sizes = ["?" if size is None else str(size) for size in tensor.shape]
    return f"{name}[{', '.join(sizes)}]"
