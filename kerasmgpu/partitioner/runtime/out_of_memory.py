"""Runs a step again, in smaller micro-batches, where it runs out of memory.

A step that runs out of memory must have changed nothing. So its variables are
assigned once everything else is computed (`turns.assign_last`), and a step with
side effects that can't wait so long isn't run again.
"""

from collections.abc import Iterator, Sequence

import tensorflow as tf
from absl import logging

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.lowering.replicas import Together
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step.graph import Graph
from kerasmgpu.partitioner.step.records import Trait

_ABORTED = "Collective ops is aborted by"
"""Text of TensorFlow's error in a worker whose collectives were aborted."""

_HARMLESS = {
    Trait.CHEAP,
    Trait.CHECKS,
    Trait.NO_STATE,
    Trait.READ_ONLY,
    Trait.RECURRENT,
}


class Repeated:
    """A program that runs again in more parts if it runs out of memory.

    Attributes:
        program: The program, or the one in more parts that replaced it.
    """

    def __init__(self, program: Program, written: Written) -> None:
        self.program = program
        self.written = written

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs the program; if memory runs out, again in twice as many parts.

        Raises:
            tf.errors.ResourceExhaustedError: If rows can't be divided further.
            InputError: If the step can't be run again.
        """
        together = self.program.replicas.together
        while True:
            error: tf.errors.OpError | None = None
            if together is None or together.begin():
                try:
                    return self.written(tensors)
                except tf.errors.OpError as raised:
                    error = raised
                finally:
                    if together is not None:
                        together.end()
            self._check(error, together)
            self._split(tensors, error, together)

    def _check(
        self, error: tf.errors.OpError | None, together: Together | None
    ) -> None:
        """Raises `error`, unless this worker or another ran out of memory.

        If it was this worker, tells the others.
        """
        ran_out = isinstance(error, tf.errors.ResourceExhaustedError)
        if together is None:
            if error is not None and not ran_out:
                raise error
        elif ran_out and _ABORTED not in str(error):
            together.give_up()
        elif error is not None and not together.is_given_up():
            raise error

    def _split(
        self,
        tensors: Sequence[tf.Tensor],
        error: tf.errors.OpError | None,
        together: Together | None,
    ) -> None:
        """Replaces the program by one in twice as many parts, or raises."""
        mesh = self.program.replicas.mesh
        parts, total = mesh.micro_batches, mesh.total
        if any(self.program.in_shares):
            total = parts  # Each device was passed its own rows.
        rows = max(
            (t.shape[0] or 0 for t in tensors if t.shape.rank), default=0
        )
        can_split = tf.executing_eagerly() and rows > total
        if together is not None:
            can_split = together.start_anew(can_split)
        if not can_split:
            logging.error(
                "kerasmgpu: %s runs out of memory in %d micro-batches, and "
                "can't be cut further. Take more replicas, shard='weights', a "
                "smaller model or a device with more memory.",
                self.program.trace.name,
                parts,
            )
            raise error or tf.errors.ResourceExhaustedError(
                None, None, "Another worker ran out of memory."
            )
        graph = self.program.trace.graph
        changed = list(dict.fromkeys(_irreversible(graph)))
        if changed:
            raise InputError(
                "A step that runs out of memory can't be run again where it "
                f"changes state in between. Received: {', '.join(changed)}, "
                f"micro_batches='auto'; set micro_batches={2 * parts}."
            ) from error
        more_parts = self.program.in_more_parts
        if more_parts is None:
            raise RuntimeError("A program without more parts was repeated.")
        logging.warning(
            "kerasmgpu: %s ran out of memory in %s; it goes on in %d.",
            self.program.trace.name,
            "one part" if parts == 1 else f"{parts} micro-batches",
            2 * parts,
        )
        self.program = more_parts(2 * parts)
        self.written = self.program.written(self.written.has_outputs)


def _irreversible(graph: Graph, is_body: bool = False) -> Iterator[str]:
    """Yields types of operations whose side effects can't be delayed.

    Only assignments can be delayed to the end of a step; in a body they can't,
    either.
    """
    for node in graph.nodes:
        traits = node.traits
        for body in node.bodies:
            yield from _irreversible(body, True)
        if node.bodies or not node.is_stateful or _HARMLESS & traits:
            continue
        if is_body or Trait.UPDATES not in traits:
            yield node.type
