"""Compiles a step with XLA while its form without XLA trains.

A thread writes the form for XLA. What its clusters take is known when a step has
run: one step runs in a third form, whose clusters XLA doesn't compile, and which
also returns the shapes, and the integers, of their arguments (`ShapeRecorder`).
With such arguments the thread calls each cluster, alone.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.ir.lowered import Cluster
from kerasmgpu.partitioner.lowering import xla_first_run
from kerasmgpu.partitioner.runtime.making import making
from kerasmgpu.partitioner.runtime.program import Emitted, Program
from kerasmgpu.partitioner.runtime.shape_recorder import ShapeRecorder
from kerasmgpu.partitioner.runtime.written import Written, without_grappler

MOST_SHAPES = 4
"""Shapes of batches that are compiled for; others run in the recording form."""

_POLL_SECONDS = 0.1

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a step's inputs."""


class CantCompile(Exception):
    """Says why a program can't be compiled while it trains."""


class BackgroundCompilation:
    """A program's form for XLA, which is compiled while the program trains.

    Call `write`, `add` and `make_ready`. Then it can be called for a step: it
    runs without XLA, and records the shapes of the batch. After `compile` and
    `use`, steps of these shapes run compiled.

    Raises:
        CantCompile: If there is no such form, with the reason.
    """

    def __init__(self, program: Program, with_outputs: bool) -> None:
        if program.in_more_parts is not None:
            raise CantCompile("micro_batches='auto' may write it anew")
        if program.trace.original is not program.trace:
            raise CantCompile("XLA would merge what is computed again")
        if program.has_random_state:
            raise CantCompile("it has operations with a random state")
        plain = program.written(with_outputs).lowered
        if any(one.clusters for one in plain.programs()):
            raise CantCompile("it has functions that are compiled in any case")
        self._program = program
        self._form = program.xla_form(with_outputs)
        self._emitted: Emitted
        self._written: Written
        self._recorder: ShapeRecorder
        self._record: _Guarded
        self._run: _Guarded
        self._compiled: set[tuple[Any, ...]] = set()
        self._recorded: dict[Shapes, list[tf.Tensor]] = {}
        self._used: set[Shapes] = set()
        self._is_stopped = False

    # While the program trains ------------------------------------------------

    def write(self) -> None:
        """Writes the form for XLA; a thread can do it."""
        with making:
            self._emitted = self._program.emitted(self._form)

    def add(self) -> None:
        """Adds the form for XLA to TensorFlow's library; collective.

        Raises:
            CantCompile: If what a cluster takes can't be known before it runs.
        """
        lowered = self._emitted.build.program
        if not lowered.clusters:
            raise CantCompile("it has no operations that XLA compiles")
        if any(
            one.clusters for one in lowered.programs() if one is not lowered
        ):
            raise CantCompile("replicas communicate in a loop or branch of it")
        self._written = self._program.added(self._emitted)
        self._recorder = ShapeRecorder(self._written)
        del self._emitted

    def make_ready(self) -> None:
        """Makes executors of both forms that take a batch; a thread can do it."""
        leaves = self._leaves()
        self._record = _Guarded(self._recorder.written, leaves)
        self._record.make_ready()
        self._run = _Guarded(self._written, leaves)

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs a step: compiled, if it is for its shapes."""
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        if shapes in self._used:
            return self._run(tensors)
        outputs = self._record(tensors)
        number = len(outputs) - self._recorder.number
        if len(self._recorded) < MOST_SHAPES:
            self._recorded.setdefault(shapes, outputs[number:])
        return outputs[:number]

    @property
    def pending(self) -> set[Shapes]:
        """The shapes of batches that were recorded, and aren't compiled for."""
        return self._recorded.keys() - self._used

    def compile(self, pending: set[Shapes]) -> None:
        """Compiles for some batches that were recorded; a thread should do it.

        Raises:
            tf.errors.OpError: What XLA can't compile, or if memory runs out.
        """
        clusters = self._written.lowered.clusters
        for shapes in sorted(pending):
            for cluster in clusters:
                if self._is_stopped:
                    return
                self._compile(cluster, self._recorded[shapes])
        self._run.make_ready()

    def use(self, compiled: set[Shapes]) -> None:
        """Uses what `compile` has made, from the next step on."""
        self._used |= compiled
        self._recorded.update(dict.fromkeys(compiled, []))  # Frees the tensors.

    def stop(self) -> None:
        """Ends `compile` after the cluster that it is at."""
        self._is_stopped = True

    # Parts -------------------------------------------------------------------

    def _leaves(self) -> list[tuple[tf.TensorSpec, str]]:
        """Returns the type and the device of each tensor that a step takes."""
        mesh, leaves = self._program.replicas.mesh, []
        for leaf, is_share, width in zip(
            self._program.trace.leaves,
            self._program.in_shares,
            self._written.widths,
        ):
            rank = None if leaf.shape is None else len(leaf.shape)
            shape = None if rank is None else [None] * rank
            for place in range(width):
                device = mesh.host
                if is_share:
                    device = mesh.devices[place * mesh.micro_batches]
                leaves.append((tf.TensorSpec(shape, leaf.dtype), device))
        return leaves

    def _compile(self, cluster: Cluster, recorded: list[tf.Tensor]) -> None:
        given = self._recorder.given(cluster, recorded)
        key = cluster.device, cluster.function, *map(_known, given)
        if key in self._compiled:
            return
        self._wait_for(cluster.function)
        with tf.device(cluster.device):
            arguments = [
                tf.constant(one)
                if isinstance(one, np.ndarray)
                else tf.raw_ops.Empty(shape=one.shape, dtype=one.dtype)
                for one in given
            ]
        self._recorder.alone(cluster)(arguments)
        self._compiled.add(key)

    def _wait_for(self, function: str) -> None:
        """Waits while another worker of this machine compiles a function."""
        queue = self._written.queues.get(function)
        host = self._program.replicas.mesh.host
        while queue and not self._is_stopped:
            if xla_first_run.is_released(queue, host):
                return
            time.sleep(_POLL_SECONDS)


def _known(argument: np.ndarray | tf.TensorSpec) -> Any:
    """Returns what a compiled program depends on, of an argument."""
    if isinstance(argument, np.ndarray):
        return argument.shape, argument.tobytes()
    return argument


class _Guarded:
    """Calls a written function, whose executors can be made before.

    TensorFlow makes them in the first call. If the inputs fail, it makes them
    all the same, and no side effect runs: side effects wait for the inputs.

    Args:
        leaves: Type and device of each tensor that it takes.
    """

    def __init__(
        self, written: Written, leaves: Sequence[tuple[tf.TensorSpec, str]]
    ) -> None:
        self._written = written
        self._leaves = leaves
        concrete = tf.function(
            self._traced, autograph=False
        ).get_concrete_function(
            tf.TensorSpec([], tf.bool), *[leaf for leaf, _ in leaves]
        )
        self._call: Callable[[list[tf.Tensor]], list[tf.Tensor]] = (
            functools.partial(
                concrete._call_flat, captured_inputs=concrete.captured_inputs
            )
        )
        self._go = tf.constant(True)

    def make_ready(self) -> None:
        """Makes the executors."""
        tensors = []
        for leaf, device in self._leaves:
            with tf.device(device):
                tensors.append(
                    tf.zeros([0] * (leaf.shape.rank or 0), leaf.dtype)
                )
        with without_grappler():
            try:
                self._call([tf.constant(False), *tensors])
            except tf.errors.InvalidArgumentError as error:
                if _NO_ERROR not in str(error):
                    raise

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs the function; see `Written.__call__`."""
        with without_grappler():
            return self._call([self._go, *tensors])

    def _traced(self, goes: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
        check = tf.debugging.Assert(goes, [_NO_ERROR])

        def wait(tensor: tf.Tensor, device: str) -> tf.Tensor:
            with tf.device(device), tf.control_dependencies([check]):
                return tf.identity(tensor)

        passed = [
            wait(one, device) for one, (_, device) in zip(tensors, self._leaves)
        ]
        captured = self._written.captured
        if self._written.communicates:
            # Weights are gathered before there is a batch.
            captured = [wait(one, one.device) for one in captured]
        return self._written(passed, captured)


_NO_ERROR = "kerasmgpu makes a step ready before it runs: this is no error"
