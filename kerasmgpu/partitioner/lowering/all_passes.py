"""The passes, in their order: on the program, then on the function's nodes."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.ir.printing import (
    clusters_text,
    nodes_text,
    program_text,
)
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.turns import (
    assign_last,
    order_collectives,
    take_turns,
)
from kerasmgpu.partitioner.lowering.update_together import update_together
from kerasmgpu.partitioner.lowering.xla_functions import cluster_for_xla
from kerasmgpu.partitioner.passes.agree import agree
from kerasmgpu.partitioner.passes.dump import Dump
from kerasmgpu.partitioner.passes.group_sums import group_sums
from kerasmgpu.partitioner.passes.guard_empty_shares import guard_empty_shares
from kerasmgpu.partitioner.passes.insert_reshards import insert_reshards
from kerasmgpu.partitioner.passes.join_again import join_again, sends_halos
from kerasmgpu.partitioner.passes.localise_sizes import localise_sizes
from kerasmgpu.partitioner.passes.lower_micro_batches import lower_micro_batches
from kerasmgpu.partitioner.passes.lower_reshards import lower_reshards
from kerasmgpu.partitioner.passes.offload import offload
from kerasmgpu.partitioner.passes.order_gathers import (
    gather_in_turns,
    order_gathers,
)
from kerasmgpu.partitioner.passes.order_micro_batches import order_micro_batches
from kerasmgpu.partitioner.passes.outline import outline, pays
from kerasmgpu.partitioner.passes.place_operations import place_operations
from kerasmgpu.partitioner.passes.place_regions import place_regions
from kerasmgpu.partitioner.passes.scatter_early import scatter_early
from kerasmgpu.partitioner.passes.sum_once import sum_once
from kerasmgpu.partitioner.rules.kinds import MeshAxes
from kerasmgpu.partitioner.step.references import Reference


def _always(program: Lowered) -> bool:
    return True


def _has_micro_batches(program: Lowered) -> bool:
    return program.mesh.micro_batches > 1


def _takes_turns(program: Lowered) -> bool:
    return bool(program.phases)


class OnProgram(NamedTuple):
    """A pass on a program and the bodies of its loops and branches.

    Attributes:
        run: The pass, a function that changes the program; dumps have its name.
        does: What it does, in a line.
        runs_on: Function that returns whether a program needs the pass.
        on_bodies: Whether it runs on each body by itself, too.
    """

    run: Callable[[Lowered], None]
    does: str
    runs_on: Callable[[Lowered], bool] = _always
    on_bodies: bool = False


class OnNodes(NamedTuple):
    """A pass on the written nodes of a function; bodies are functions, too.

    Attributes:
        run: The pass, a function that changes the written nodes.
        does: See `OnProgram`.
        runs_on: See `OnProgram`.
        text: Function of the `Build` that returns the text of the pass's dump.
    """

    run: Callable[[Build], None]
    does: str
    runs_on: Callable[[Lowered], bool] = _always
    text: Callable[[Build], str] = lambda build: nodes_text(build.writer.nodes)


def _updates_together(program: Lowered) -> bool:
    return (
        program.mesh.total > 1
        and not program.form.assigns_last
        and program.fails_by_itself()
    )


def _is_joined(along: MeshAxes) -> bool:
    return len(along) > 1


PASSES: Sequence[OnProgram | OnNodes] = (
    OnProgram(
        sum_once,
        "sums over rows that several replicas have count once",
        lambda program: any(map(_is_joined, program.mesh.planning_axes)),
        on_bodies=True,
    ),
    OnProgram(
        insert_reshards,
        "a `Reshard` wherever a placement changes",
        on_bodies=True,
    ),
    OnProgram(lower_reshards, "communication, slices, recomputation for each"),
    OnProgram(
        scatter_early,
        "reduce-scatters behind what makes gradients",
        on_bodies=True,
    ),
    OnProgram(
        group_sums, "parts summed at once are one all-reduce", on_bodies=True
    ),
    OnProgram(place_regions, "who runs a loop or branch"),
    OnProgram(agree, "workers take the first one's value"),
    OnProgram(place_operations, "what each replica runs; what waits for data"),
    OnProgram(guard_empty_shares, "kernels that must not see no rows"),
    OnProgram(order_gathers, "at most two gathered weights are whole at once"),
    OnProgram(join_again, "halos are joined again for late uses", sends_halos),
    OnProgram(localise_sizes, "workers gather each other's numbers of rows"),
    OnProgram(
        lower_micro_batches,
        "what runs for each micro-batch, and what once per device",
        _has_micro_batches,
    ),
    OnProgram(
        order_micro_batches,
        "the phase in which micro-batches run an instruction",
        _has_micro_batches,
    ),
    OnProgram(
        gather_in_turns,
        "weights are gathered in each phase",
        _has_micro_batches,
    ),
    OnProgram(
        offload,
        "what runs on the host, next to variables there",
        lambda program: bool(program.offloaded),
        on_bodies=True,
    ),
    OnProgram(outline, "functions that each replica calls", pays),
    OnNodes(
        order_collectives,
        "collectives wait for one another in the order of turns",
        _takes_turns,
    ),
    OnNodes(
        take_turns,
        "a micro-batch's turn waits for the end of the one before",
        _takes_turns,
    ),
    OnNodes(
        assign_last,
        "assignments wait for everything else, on all workers",
        lambda program: program.form.assigns_last,
    ),
    OnNodes(
        update_together,
        "assignments wait for what checks values, on all replicas",
        _updates_together,
    ),
    OnNodes(
        cluster_for_xla,
        "calls of functions that XLA compiles",
        text=lambda build: clusters_text(build.program),
    ),
)
"""All passes, in the order in which they run."""


def lower(program: Lowered, dump: Dump) -> None:
    """Runs the passes on programs, which change `program` in place."""
    for one in PASSES:
        if isinstance(one, OnProgram) and one.runs_on(program):
            for each in program.programs() if one.on_bodies else [program]:
                one.run(each)
            dump(one.run.__name__, lambda: program_text(program))


def finish(
    build: Build,
    name: str,
    outputs: Sequence[Reference],
    dump: Dump | None = None,
) -> function_pb2.FunctionDef:
    """Runs the passes on nodes; returns the function, without dead nodes.

    Functions that it calls are in `build.library`; it isn't added there itself.

    Args:
        build: `building.Build` of the function, with all its nodes written.
        dump: See `lower`; `None` for bodies.
    """
    build.outputs = list(outputs)
    for one in PASSES:
        if isinstance(one, OnNodes) and one.runs_on(build.program):
            one.run(build)
            if dump is not None:
                dump(one.run.__name__, functools.partial(one.text, build))
    types = [reference.dtype for reference in outputs]
    return build.writer.function(name, build.outputs, types)
