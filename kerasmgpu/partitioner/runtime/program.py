"""Writes a planned trace as functions that the replicas run together."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.lowered import Form, Lowered
from kerasmgpu.partitioner.lowering import (
    all_passes,
    device_shares,
    entries,
    xla_first_run,
)
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.communicators import (
    new_groups,
    require_equal,
)
from kerasmgpu.partitioner.lowering.compute_time import ComputeTime
from kerasmgpu.partitioner.lowering.emission import emit
from kerasmgpu.partitioner.lowering.function_writer import References
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.runtime.making import making
from kerasmgpu.partitioner.runtime.planned_trace import PlannedTrace
from kerasmgpu.partitioner.runtime.tracing import (
    Trace,
    without_garbage_collection,
)
from kerasmgpu.partitioner.runtime.written import Written

_numbers = itertools.count()


@dataclasses.dataclass
class Emitted:
    """A written function that isn't in TensorFlow's library.

    Attributes:
        build: Its `Build`, with its library and what it captures.
        widths: For each leaf of the arguments, the number of tensors that it is
            passed as.
        types: `tf.DType`s of its outputs.
    """

    build: Build
    widths: list[int]
    types: list[tf.DType]


BeforeCompiling = Callable[
    [Collection[str], Mapping[str, int] | None], Mapping[str, str] | None
]
"""Is told the names of functions that XLA will compile. If all workers of a job
write the function at that time, it is also told the levels of its clusters, and
may call collectives. Returns the queues on which clusters wait for another
worker's compilation, by function; `None` if no device loads another's programs."""


class Program(PlannedTrace):
    """A planned trace, whose forms are written on demand.

    Args:
        jit_compile: Whether XLA compiles each cluster of a replica's operations
            without communication.
        compute_time: `compute_time.ComputeTime` that measures the program, or
            `None`.
        in_more_parts: Function that returns the program for a number of
            micro-batches, or `None`. If it is given, variables are assigned
            when everything else is computed; see `out_of_memory.py`.
        log: Function `(program, written)` that is called when a function is
            written, or `None`.
        before_compiling: `BeforeCompiling`, which is called before XLA
            compiles, or `None`.

    For other arguments see `PlannedTrace`.

    Attributes:
        form: The `Form` in which it is written.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: Replicas,
        in_shares: tuple[bool, ...] | None = None,
        jit_compile: bool = False,
        compute_time: ComputeTime | None = None,
        first_batch: Sequence[Sequence[int | None]] | None = None,
        in_more_parts: "Callable[[int], Program] | None" = None,
        log: "Callable[[Program, Written], None] | None" = None,
        before_compiling: BeforeCompiling | None = None,
    ) -> None:
        super().__init__(trace, replicas, in_shares, first_batch)
        self.in_more_parts = in_more_parts
        self.form = Form(jit_compile, assigns_last=in_more_parts is not None)
        self._compute_time = compute_time
        self._log = log
        self._before_compiling = before_compiling
        self._written: dict[bool, Written] = {}

    def written(self, with_outputs: bool = True) -> Written:
        """Returns the function for the replicas, written when first needed.

        Args:
            with_outputs: Whether the outputs of the traced function are needed.
                If not, the function with outputs is still returned if it exists
                already, or if the step has random state.
        """
        # Two functions would each have a random state of its own.
        with_outputs = with_outputs or self.has_random_state
        if True in self._written:
            return self._written[True]
        with making:
            if with_outputs not in self._written:
                self._written[with_outputs] = self.written_as(
                    dataclasses.replace(self.form, with_outputs=with_outputs)
                )
        return self._written[with_outputs]

    def written_as(self, form: Form) -> Written:
        """Writes a form, and adds it to TensorFlow's library; collective."""
        with making, without_garbage_collection():
            return self.added(self.emitted(form))

    def xla_form(self, with_outputs: bool) -> Form:
        """Returns a form that XLA compiles, and that can replace this one's.

        A thread can write it.
        """
        groups = new_groups(self.replicas.mesh)
        return Form(True, with_outputs, is_xla_form=True, groups=groups)

    @functools.cached_property
    def without_arguments(self) -> Written | None:
        """The side effects of a step whose input is exhausted.

        A `Written` without outputs; `None` if there are no side effects, or XLA
        compiles the program: it runs all or nothing.
        """
        if self.form.is_compiled:
            return None
        trace = self.trace.without_arguments()
        if trace is None:
            return None
        program = Program(trace, self.replicas, log=self._log)
        return program.written(with_outputs=False)

    def emitted(self, form: Form) -> Emitted:
        """Writes the function of a form; TensorFlow doesn't get it.

        It is the last function of the `library` of `Emitted.build`.
        """
        lowered = self.lowered(form)
        given = self._passed()
        library: list[function_pb2.FunctionDef] = []
        build = Build(lowered, library, self.replicas)
        mesh, widths = self.replicas.mesh, []
        for tensor, in_shares in zip(self.trace.leaves, self.in_shares):
            width = mesh.num // mesh.micro_batches if in_shares else 1
            widths.append(width)
            passed = [
                build.writer.add_input("batch", tensor.dtype)
                for _ in range(width)
            ]
            references: References = (
                device_shares.pass_to_devices(build, tensor, passed)
                if in_shares
                else build.same(passed[0])
            )
            build.give(given[tensor], references)
            build.wait_for(references[0])
        for tensor, _ in self.trace.captured:
            references = [build.captured(h) for h in self.handles[tensor]]
            build.give(given[tensor], references)
        if mesh.total > 1:
            for leaf in self.trace.sparse:
                if self.given[leaf.indices].is_local:
                    entries.sort_by_row(build, leaf)
        if self._compute_time is not None:
            build.clock = self._compute_time.clock(build)
        emit(build, lowered)
        made = [build.references(one)[0] for one in lowered.outputs]
        name = f"kerasmgpu_{self.trace.name}_{next(_numbers)}"
        build.writer.effects = build.effects()
        if build.clock is not None:
            build.writer.effects += build.clock.finish()
        library.append(all_passes.finish(build, name, made, self.trace.dump))
        return Emitted(build, widths, [one.dtype for one in made])

    def added(self, emitted: Emitted) -> Written:
        """Adds an emitted function to TensorFlow's library; collective."""
        build, lowered = emitted.build, emitted.build.program
        agreement = self.replicas.agreement
        are_together = require_equal(build, agreement, self.trace.name)
        library = build.library
        for one in lowered.programs():
            for cluster in one.clusters:
                self.trace.compiled[cluster.function] = cluster.origins
        queues = self._queues(lowered, are_together)
        first = None
        # Another function would have another random state.
        if queues is not None and not (
            lowered.form.is_xla_form or self.has_random_state
        ):
            first = xla_first_run.in_turns(
                library[-1], lowered.clusters, queues, self.replicas.mesh.host
            )
        written = Written(
            library,
            [tensor for tensor, _ in build.captures.values()],
            emitted.types,
            [tensor.static for tensor in self.trace.graph.outputs],
            emitted.widths,
            lowered.form.with_outputs,
            lowered,
            first,
            queues,
        )
        self.trace.dump("write", lambda: "\n".join(map(str, library)))
        if self._log is not None:
            self._log(self, written)
        return written

    def _queues(
        self, lowered: Lowered, are_together: bool
    ) -> Mapping[str, str] | None:
        """Returns what `BeforeCompiling` says of a form that is written."""
        if self._before_compiling is None:
            return None
        levels: dict[str, int] = {}
        for cluster in lowered.clusters:
            level = levels.get(cluster.function, cluster.level)
            levels[cluster.function] = min(level, cluster.level)
        can_wait = lowered.form.is_compiled and not self.has_random_state
        return self._before_compiling(
            self.trace.compiled.keys(),
            levels if are_together and can_wait else None,
        )
