"""Reports and logs how a program was partitioned, in figures."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import tensorflow as tf
from absl import logging

from kerasmgpu.partitioner.ir.exchanges import LookUp, ToOwners
from kerasmgpu.partitioner.ir.instructions import (
    AllGather,
    AllReduce,
    Broadcast,
    Communication,
    GatherCounts,
    ReduceScatter,
    Sent,
    ToDevice,
    ToHost,
)
from kerasmgpu.partitioner.passes.order_gathers import bytes_alive
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.sharded_variable import variable_of
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait

_logged: set[tuple[Any, ...]] = set()

_MOST_NAMES = 5
"""Most layers that a log line names."""

_SENT = {
    AllReduce: "summed",
    Broadcast: "summed",
    ReduceScatter: "summed",
    AllGather: "gathered",
    GatherCounts: "gathered",
    LookUp: "gathered",
    ToOwners: "gathered",
}


def counts(program: Program) -> tuple[int, int, int, Counter[str]]:
    """Counts the operations of the one-device step by how replicas run them.

    Operations in bodies of loops and branches count once each. Those neither in
    `with_rule` nor in `gathered` work on whole values without communication:
    constants, variables, optimizers' updates.

    Returns:
        `(operations, with_rule, gathered, types)`: the number of all
        operations; of operations that each replica runs on its own rows or its
        own part of a sum; of operations without a rule, for which rows were
        gathered; and a `Counter` of the types of those without a rule.
    """
    operations, with_rule = 0, 0
    types: Counter[str] = Counter()
    for node, plans in planned(program.trace.graph, program.plans):
        operations += 1
        if not all(plan.rule for plan in plans):
            types[node.type] += 1
        elif any(plan.is_local for plan in plans):
            with_rule += 1
    return operations, with_rule, sum(types.values()), types


def planned(
    graph: Graph, plans: Sequence[Plans]
) -> Iterator[tuple[Node, list[Plan]]]:
    """Yields all nodes of a graph and of its bodies.

    With each come its plans on the axes of the mesh.
    """
    for node in graph.nodes:
        if node not in plans[0].nodes:  # An input.
            continue
        own = [of_axis.nodes[node] for of_axis in plans]
        yield node, own
        if node.bodies:
            of_bodies = zip(*(plan.details for plan in own))
            for body, inner in zip(node.bodies, of_bodies):
                yield from planned(body, inner)


def summed_bytes(written: Written) -> int:
    """Returns the bytes that a function sums over the replicas in a step.

    Sizes that depend on the number of rows count as 0.
    """
    return sum(
        bytes_of(sent, 0) * times
        for one, times in communication(written)
        if isinstance(one, (AllReduce, ReduceScatter))
        for sent in one.sizes(written.lowered.mesh)
    )


def communication(written: Written) -> Iterator[tuple[Communication, int]]:
    """Yields all communication, and how many times each happens in a step.

    It happens once per micro-batch where it is done in turns, as for sharded
    weights and their gradients; else once, even inside a loop.
    """
    for one in written.lowered.communication():
        in_turns = getattr(one, "in_turns", False)
        yield one, written.lowered.mesh.micro_batches if in_turns else 1


def gathered_bytes(written: Written) -> int:
    """Returns the peak bytes of gathered weights on each replica."""
    return bytes_alive(written.lowered)


def linked_bytes(written: Written) -> tuple[int, int]:
    """Returns the bytes that a replica copies to the host, and back, in a step.

    Returns:
        `(to_host, to_device)`, for the longest parts; scalars aren't counted.
    """
    mesh, found = written.lowered.mesh, {ToHost: 0, ToDevice: 0}
    for one in written.lowered.all_instructions():
        if isinstance(one, (ToHost, ToDevice)):
            (copied,) = one.inputs
            parts = math.prod(
                mesh.num_parts(kind.rows)
                for kind in copied.placement
                if isinstance(kind, Sharded)
            )
            each = Fraction(copied.tensor.dtype.size, parts)
            sent = copied.tensor, copied.tensor.num_elements, each
            found[type(one)] += bytes_of(sent, 0)
    return found[ToHost], found[ToDevice]


def collectives(written: Written) -> list[str]:
    """Lists what the replicas send in a step, such as `"all_reduce of dense"`."""
    names: dict[str, None] = {}
    for one in written.lowered.communication():
        layers = dict.fromkeys(
            part_of(tensor.node.name)
            for tensor, *_ in one.sizes(written.lowered.mesh)
        )
        names[f"{one.name} of {', '.join(layers)}"] = None
    return list(names)


def by_layer(
    program: Program, rows: int, name_of: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Counts what the replicas compute and send, for each layer of a step.

    Args:
        rows: Number of rows of a batch over all replicas.
        name_of: Function that returns the layer in a node's name.

    Returns:
        List of dictionaries, in the order of the step: `name` of the layer or
        other part, `operations`, how many of them are `sharded`, bytes that
        are `gathered` and `summed` in a step, `no_rule`: types of operations
        without a rule.
    """
    parts = {}

    def part(node: Node) -> dict[str, Any]:
        name = name_of(node.name)
        empty = dict(operations=0, sharded=0, gathered=0, summed=0, no_rule=[])
        return parts.setdefault(name, {"name": name, **empty})

    for node, plans in planned(program.trace.graph, program.plans):
        entry = part(node)
        entry["operations"] += 1
        entry["sharded"] += any(plan.is_local for plan in plans)
        if (
            not all(plan.rule for plan in plans)
            and node.type not in entry["no_rule"]
        ):
            entry["no_rule"].append(node.type)
    for one, times in communication(program.written()):
        for sent in one.sizes(program.replicas.mesh):
            for tensor, size in shares(sent, rows):
                part(tensor.node)[_SENT[type(one)]] += size * times
    return list(parts.values())


def whole_products(program: Program) -> list[Node]:
    """Finds expensive operations on whole batches, which no replicas share.

    Returns:
        List of the products, convolutions and recurrent layers whose inputs are
        whole, although sizes of these depend on the batch.
    """
    return [
        node
        for node, plans in planned(program.trace.graph, program.plans)
        if not {Trait.PRODUCT, Trait.RECURRENT}.isdisjoint(node.traits)
        and not any(plan.is_local for plan in plans)
        and not all(sizes.are_integers(t.shape) for t in node.inputs)
    ]


def kept_by_micro_batches(written: Written) -> dict[str, int]:
    """Returns the bytes kept across phases of micro-batches, by layer.

    An operation that looks at all rows, as a batch normalisation does, needs
    results of all micro-batches before any continues; values that they use
    later are kept for all rows.

    Returns:
        `{layer: bytes per row}` of the layers whose values are kept; empty if
        each micro-batch is done before the next one begins.
    """
    phases = written.lowered.phases
    made = {
        one: phase
        for instruction, phase in phases.items()
        for one in instruction.outputs
    }
    kept = {
        one
        for instruction, phase in phases.items()
        for one in instruction.inputs
        if made.get(one, phase) < phase
    }
    found: dict[str, int] = {}
    for one in made:
        kind = one.placement[0]
        if one in kept and isinstance(kind, Sharded):
            tensor, rows = one.tensor, kind.rows.size
            per_row = sizes.divide(tensor.num_elements, rows)
            sent = tensor, per_row, Fraction(tensor.dtype.size)
            name = part_of(tensor.node.name)
            found[name] = found.get(name, 0) + bytes_of(sent, 1)
    return found


def log(program: Program, written: Written) -> None:
    """Logs what a function shards, keeps, gathers or computes on whole batches.

    The same line is logged only once.
    """
    _log_offloaded(program, written)
    if program.replicas.mesh.total == 1:
        return
    _log_sharded(program, written)
    _log_kept(program, written)
    _log_gathered(program, written)
    products = whole_products(program)
    if products and _is_new(program.trace.name, len(products)):
        logging.info(
            "kerasmgpu: %s has %d products of whole batches, which no replicas "
            "share: %s. Their inputs don't come by rows; the results are those "
            "of one device.",
            program.trace.name,
            len(products),
            ", ".join(dict.fromkeys(part_of(node.name) for node in products)),
        )


def _is_new(*line: Any) -> bool:
    """Whether a line hasn't been logged yet; from now on it has."""
    is_new = line not in _logged
    _logged.add(line)
    return is_new


def _log_sharded(program: Program, written: Written) -> None:
    sharded = [
        variable
        for _, handle in program.trace.captured
        if (variable := variable_of(handle)) is not None
    ]
    whole = sum(
        variable.shape.num_elements() * variable.dtype.size
        for variable in sharded
    )
    if not sharded or not _is_new(program.trace.name, "sharded", whole):
        return
    mesh = program.replicas.mesh
    logging.info(
        "kerasmgpu: %s: %d variables of %.1f MiB are sharded over %d replicas; "
        "at most %.1f MiB of gathered weights are whole at a time.",
        program.trace.name,
        len(sharded),
        whole / 2**20,
        mesh.total // mesh.micro_batches,
        gathered_bytes(written) / 2**20,
    )


def _log_offloaded(program: Program, written: Written) -> None:
    to_host, to_device = linked = linked_bytes(written)
    if not written.lowered.offloaded or not _is_new(
        program.trace.name, "offloaded", linked
    ):
        return
    logging.info(
        "kerasmgpu: %s: %d variables are in host memory; in a step a replica "
        "copies %.1f MiB there, and gets %.1f MiB back.",
        program.trace.name,
        len(written.lowered.offloaded),
        to_host / 2**20,
        to_device / 2**20,
    )


def _log_kept(program: Program, written: Written) -> None:
    kept = kept_by_micro_batches(written)
    parts = program.replicas.mesh.micro_batches
    if not kept or not _is_new(program.trace.name, "kept", parts):
        return
    largest = sorted(kept, key=lambda name: -kept[name])[:_MOST_NAMES]
    more = ", …" if len(kept) > _MOST_NAMES else ""
    logging.info(
        "kerasmgpu: %s has operations that look at all rows of a batch: its %d "
        "micro-batches keep about %s bytes per row for one another (%s%s).",
        program.trace.name,
        parts,
        f"{sum(kept.values()):,}",
        ", ".join(largest),
        more,
    )


def _log_gathered(program: Program, written: Written) -> None:
    *_, types = counts(program)
    if not types or not _is_new(program.trace.name, *types):
        return
    per_row = sum(
        bytes_of(sent, 1)
        for one in written.lowered.communication()
        if isinstance(one, AllGather)
        for sent in one.sizes(written.lowered.mesh)
    )
    logging.info(
        "kerasmgpu: %s has operations without a rule, for which rows are "
        "gathered: %s. %s travel for that in a step; the results are those of "
        "one device.",
        program.trace.name,
        ", ".join(f"{count} {type}" for type, count in types.items()),
        f"About {per_row:,} bytes per row"
        if per_row
        else "Bytes whose number depends on the data",
    )


def part_of(name: str) -> str:
    """Returns the layer in a node's name; `"the step itself"` if in none."""
    scopes = [
        scope
        for scope in name.split("/")[:-1]
        if scope not in ("gradient_tape", "while", "gradients", "cond")
        # An operation's own name, as in "adam/Sub_2/ReadVariableOp".
        and not hasattr(tf.raw_ops, re.sub(r"_\d+$", "", scope))
    ]
    if not scopes:
        return "the step itself"
    return scopes[min(1, len(scopes) - 1)]


def shares(sent: Sent, rows: int) -> list[tuple[Tensor, int]]:
    """Returns the tensors that are sent, with the bytes of each.

    They are several where small sums of one shape are packed into one tensor.

    Args:
        sent: See `ir.instructions.Communication.sizes`.
        rows: Number of rows of a batch over all replicas.
    """
    whole, num_bytes = sent[0], bytes_of(sent, rows)
    is_packed = whole.node.type == "Pack"
    tensors = whole.node.inputs if is_packed else [whole]
    return [(tensor, num_bytes // len(tensors)) for tensor in tensors]


def bytes_of(sent: Sent, rows: int) -> int:
    """Returns the bytes that are sent, for a number of rows.

    Other symbols in the number of elements count as 1.

    Args:
        sent: See `ir.instructions.Communication.sizes`.

    Returns:
        Integer; 0 if the number of elements is unknown.
    """
    _, elements, bytes_each = sent
    if elements is None:
        return 0
    if isinstance(elements, sizes.Size):
        symbols = dict.fromkeys(elements.symbols, 0)
        known = {s: rows if s.joined.is_rows else 1 for s in symbols}
        elements = sizes.evaluate(elements, known)
    return math.ceil(elements * bytes_each)
