"""Runs several steps on an iterator in one call of a `tf.function`."""

import contextlib
import contextvars
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Shares, joined
from kerasmgpu.partitioner.runtime.making import making, stepping
from kerasmgpu.partitioner.runtime.out_of_memory import Repeated
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.tracing import without_garbage_collection
from kerasmgpu.partitioner.runtime.written import Written, without_grappler

Around = Callable[
    [Program, Written, Callable[[list], list], list[tf.Tensor]],
    list[tf.Tensor],
]
"""Function `(program, written, run, tensors)` that is called for each step: returns
`run(tensors)`. `tensors` are those of a batch that `written` takes."""

_around: contextvars.ContextVar[Around | None] = contextvars.ContextVar(
    "kerasmgpu_around", default=None
)


@contextlib.contextmanager
def watched(around: Around | None) -> Iterator[None]:
    """Context in which executions call a function around each of their steps.

    Batches are taken apart from the steps then, and steps run one by one.
    """
    token = _around.set(around)
    try:
        yield
    finally:
        _around.reset(token)


class Execution:
    """Takes batches from an iterator and runs a program on each.

    Args:
        steps: Number of steps of a call; fewer if the data ends.
        local_results: Function that lists the tensors of a per-replica value.
    """

    def __init__(
        self,
        program: Program,
        written: Written,
        steps: int,
        local_results: Callable[[Any], Sequence],
    ) -> None:
        self._program = program
        self._written = written
        self._steps = steps
        self._local_results = local_results
        self._function = tf.function(
            self._next if steps == 1 else self._several, autograph=False
        )
        self._takes_leaves = steps == 1
        self._batchwise: BatchwiseExecution | None = None
        self._trace: tuple[Any, Any] = (None, None)
        self._places = program.trace.with_places()

    def __call__(self, iterator: Any) -> Any:
        """Runs the steps.

        Returns:
            The outputs of the last step, in the structure that the traced
            function returns; `None` if the function was written without them.

        Raises:
            tf.errors.OutOfRangeError: If there is no data, with one step.
            StopIteration: If there is no data, with several steps per call.
        """
        around = _around.get()
        if around is not None:
            return self._run_watched(around, iterator)
        first = self._written.take_first()
        execution = self
        if first is not self._written:
            execution = Execution(
                self._program, first, self._steps, self._local_results
            )
        run = execution._flat(iterator)
        try:
            with self._places, first.running():
                outputs = run()
        except tf.errors.OutOfRangeError:
            self._end()
            raise
        if self._steps > 1:
            done, outputs = outputs
            if not done:
                raise StopIteration
        return self._packed(outputs)

    def _run_watched(self, around: Around, iterator: Any) -> Any:
        if self._batchwise is None:
            given = self._program, self._written, self._steps
            self._batchwise = BatchwiseExecution(
                *given, self._local_results, run=self._written
            )
        return self._batchwise._run_watched(around, iterator)

    def _packed(self, outputs: list[tf.Tensor]) -> Any:
        if not self._written.has_outputs:
            return None
        return self._program.trace.packed(outputs)

    def forget(self) -> None:
        """Lets go of the last iterator, which may hold batches."""
        self._trace = (None, None)

    def _flat(self, iterator: Any) -> Callable[[], Any]:
        """Returns a function without arguments that runs on an iterator.

        A `ConcreteFunction` binds and flattens its arguments in every call, for
        0.1 ms: iterators are composite tensors, and iterators that callbacks
        wrap are nested ones. Its captures are tensors that don't change.
        """
        last, run = self._trace
        if last is not iterator:
            with making, without_garbage_collection():
                concrete = self._function.get_concrete_function(iterator)
                tensors = tf.nest.flatten(iterator, expand_composites=True)
                run = self._bound(concrete, tensors)
            self._trace = (iterator, run)
        return run

    def _bound(
        self, concrete: Any, tensors: Sequence[tf.Tensor]
    ) -> Callable[[], Any]:
        """Returns a function that calls `concrete` with tensors."""
        if self._takes_leaves:
            return self._written.fed(concrete, tensors)
        return functools.partial(
            concrete._call_flat, tensors, concrete.captured_inputs
        )

    def _end(self) -> None:
        """Runs the side effects of a step whose input is exhausted.

        On one device these happen in single-step calls only: the loop of
        several steps checks for data first.
        """
        if self._steps == 1:
            rest = self._program.without_arguments
            if rest is not None:
                rest([])

    def _next(self, iterator: Any) -> list[tf.Tensor]:
        with _first_replica_first():
            batch = iterator.get_next()
        return self._leaves(batch)

    def _several(self, iterator: Any) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Runs a loop of steps in the graph, until the data ends.

        Returns whether any step ran, and the outputs of the last step.
        """

        def goes_on(
            done: tf.Tensor, batch: Any, *outputs: tf.Tensor
        ) -> tf.Tensor:
            return tf.logical_and(done < self._steps, batch.has_value())

        def step(done: tf.Tensor, batch: Any, *outputs: tf.Tensor) -> tuple:
            made = self._written(self._leaves(batch.get_value()))
            batch = tf.cond(
                done + 1 < self._steps,
                iterator.get_next_as_optional,
                lambda: batch,
            )
            return (done + 1, batch, *made)

        done, _, *outputs = tf.while_loop(
            goes_on,
            step,
            (tf.constant(0), iterator.get_next_as_optional(), *self._empty()),
            shape_invariants=None,
        )
        return done > 0, outputs

    def _empty(self) -> list[tf.Tensor]:
        """Returns initial values of the outputs in the loop: zeros."""
        return [
            tf.zeros(
                [size if isinstance(size, int) else 0 for size in tensor.shape],
                tensor.dtype,
            )
            for tensor in self._program.trace.graph.outputs
            if self._written.has_outputs
        ]

    def _leaves(self, batch: Any) -> list[tf.Tensor]:
        """Returns the tensors of a batch in the order of the program's inputs."""
        tensors = []
        for leaf in tf.nest.flatten(batch):
            whole = joined(self._local_results(leaf))
            if whole is None or isinstance(whole, tf.experimental.Optional):
                continue
            if isinstance(whole, Shares):
                tensors.append(whole.values)
            else:
                parts = tf.nest.flatten(whole, expand_composites=True)
                tensors += [[part] for part in parts]
        return [
            tensor
            for shares, width in zip(tensors, self._written.widths)
            for tensor in shares[:width]
        ]


class BatchwiseExecution(Execution):
    """Takes a batch from an iterator, then passes it to a function.

    Several steps are several calls. `run` runs a step on the tensors that
    `written` takes; for other arguments see `Execution`.
    """

    def __init__(
        self, *args: Any, run: Callable[[list[tf.Tensor]], list[tf.Tensor]]
    ) -> None:
        super().__init__(*args)
        self._run = run
        self._takes_leaves = False
        self._function = tf.function(self._next, autograph=False)

    def _run_watched(self, around: Around, iterator: Any) -> Any:
        watching = copy.copy(self)
        watching._run = functools.partial(
            around, self._program, self._written, self._run
        )
        with watched(None):
            return watching(iterator)

    def __call__(self, iterator: Any) -> Any:
        around = _around.get()
        if around is not None:
            return self._run_watched(around, iterator)
        outputs: list[tf.Tensor] = []
        for number in range(self._steps):
            try:
                with without_grappler():
                    take = self._flat(iterator)
                    with stepping:
                        tensors = take()
            except tf.errors.OutOfRangeError:
                if number:
                    break
                self._end()
                if self._steps > 1:
                    raise StopIteration from None
                raise
            with self._places, self._written.running():
                outputs = self._run(tensors)
        return self._packed(outputs)


class RepeatedExecution(BatchwiseExecution):
    """Takes a batch from an iterator, and runs a `Repeated` on it.

    A batch must outlive its step. Arguments are those of `Execution`.
    """

    def __init__(self, program: Program, written: Written, *args: Any) -> None:
        self._repeated = Repeated(program, written)
        super().__init__(program, written, *args, run=self._repeated)

    def _packed(self, outputs: list[tf.Tensor]) -> Any:
        if not self._repeated.written.has_outputs:
            return None
        return self._repeated.program.trace.packed(outputs)


@contextlib.contextmanager
def _first_replica_first() -> Iterator[None]:
    """Makes the other replicas request their batches after the first one.

    If the input pipeline raises, the first request gets the error. The others
    can get an end-of-data, which TensorFlow could report instead.
    """
    graph = tf.compat.v1.get_default_graph()
    num_known = len(graph.get_operations())
    yield
    asking = [
        op
        for op in graph.get_operations()[num_known:]
        if op.type == "IteratorGetNext"
    ]
    for other in asking[1:]:
        other._add_control_input(asking[0])


def is_empty(specification: Any) -> bool:
    """Whether values of a specification hold no data, as `None` in a batch."""
    return isinstance(specification, tf.OptionalSpec) or not (
        tf.nest.flatten(specification, expand_composites=True)
    )
