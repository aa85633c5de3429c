"""Reports and logs how a program was partitioned, in figures."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from absl import logging

from kerasmgpu.errors import listed
from kerasmgpu.partitioner.ir.instructions import (
    AllReduce,
    Broadcast,
    ReduceScatter,
)
from kerasmgpu.partitioner.rules.kinds import REPLICATED
from kerasmgpu.partitioner.runtime.costs import Costs, part_of, planned
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.sharded_variable import variable_of
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.constraints import varying_lengths
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait

_logged: set[tuple[Any, ...]] = set()

_MOST_NAMES = 5
"""Most layers that a log line names."""


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
    for one in Costs(program.written().lowered, rows).sendings():
        is_sum = isinstance(one.by, (AllReduce, Broadcast, ReduceScatter))
        part(one.tensor.node)["summed" if is_sum else "gathered"] += (
            one.combined
        )
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


def log(program: Program, written: Written) -> None:
    """Logs what a function shards, keeps, gathers or computes on whole batches.

    The same line is logged only once.
    """
    _log_offloaded(program, written)
    if program.replicas.mesh.total == 1:
        return
    _log_whole(program)
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


def _log_whole(program: Program) -> None:
    """Warns of axes that a layout names and that aren't divided."""
    for node, plans in planned(program.trace.graph, program.plans):
        name, lengths = varying_lengths(node)
        for number, axis in lengths.items():
            if plans[number].gives == (REPLICATED,) and _is_new(name, axis):
                logging.warning(
                    "kerasmgpu: %s stays whole along axis %d: a layout divides "
                    "axes of a fixed length, or of an input's, and this one's "
                    "is computed.",
                    name,
                    axis,
                )


def _log_sharded(program: Program, written: Written) -> None:
    sharded = [
        variable
        for _, handle in program.trace.captured
        if (variable := variable_of(handle)) is not None
    ]
    whole = sum(variable.num_bytes for variable in sharded)
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
        Costs(written.lowered).gathered() / 2**20,
    )


def _log_offloaded(program: Program, written: Written) -> None:
    to_host, to_device = linked = Costs(written.lowered).linked()
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
    kept = Costs(written.lowered).kept_by_micro_batches()
    parts = program.replicas.mesh.micro_batches
    if not kept or not _is_new(program.trace.name, "kept", parts):
        return
    logging.info(
        "kerasmgpu: %s has operations that look at all rows of a batch: its %d "
        "micro-batches keep about %s bytes per row for one another (%s).",
        program.trace.name,
        parts,
        f"{sum(kept.values()):,}",
        listed(sorted(kept, key=lambda name: -kept[name]), _MOST_NAMES),
    )


def _log_gathered(program: Program, written: Written) -> None:
    *_, types = counts(program)
    if not types or not _is_new(program.trace.name, *types):
        return
    per_row = Costs(written.lowered).gathered_per_row()
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
