"""Several steps on an iterator in one call, with little Python per call."""

import contextlib

import tensorflow as tf
from tensorflow.python.eager import context

from kerasmgpu.partitioner.function import Shares, joined
from kerasmgpu.partitioner.program import CONFIG


class Execution:
    """Takes batches from an iterator and runs a program on each.

    Args:
        program: `program.Program`.
        written: `program.Written` of it.
        steps: Number of steps of a call; fewer where the data ends.
        local_results: Function that lists a per-replica value's tensors.
    """

    def __init__(self, program, written, steps, local_results):
        self._program = program
        self._written = written
        self._steps = steps
        self._local_results = local_results
        self._function = tf.function(
            self._one if steps == 1 else self._several, autograph=False
        )
        self._trace = (None, None)

    def __call__(self, iterator):
        """Runs the steps.

        Returns:
            What the last step returned, `None` if the program returns nothing.

        Raises:
            tf.errors.OutOfRangeError: If there is no data.
        """
        last, concrete = self._trace
        if last is not iterator:
            concrete = self._function.get_concrete_function(iterator)
            self._trace = (iterator, concrete)
        try:
            with _without_optimizer():
                outputs = concrete(iterator)
        except tf.errors.OutOfRangeError:
            self._end()
            raise
        if self._steps > 1:
            done, outputs = outputs
            if not done:
                raise StopIteration
        if not self._written.has_outputs:
            return None
        return self._program.trace.packed(outputs)

    def _end(self):
        """Does what a step does before it finds out that the data have ended.

        On one device TensorFlow does that in a single step only: where several
        steps are one call, the loop asks for the data first.
        """
        if self._steps == 1:
            rest = self._program.without_arguments
            if rest is not None:
                rest([])

    def _one(self, iterator):
        with _first_replica_first():
            batch = iterator.get_next()
        return self._written(self._leaves(batch))

    def _several(self, iterator):
        """A loop in the graph; it ends where the data ends."""

        def goes_on(done, batch, *outputs):
            return tf.logical_and(done < self._steps, batch.has_value())

        def step(done, batch, *outputs):
            outputs = self._written(self._leaves(batch.get_value()))
            batch = tf.cond(
                done + 1 < self._steps,
                iterator.get_next_as_optional,
                lambda: batch,
            )
            return (done + 1, batch, *outputs)

        done, _, *outputs = tf.while_loop(
            goes_on,
            step,
            (tf.constant(0), iterator.get_next_as_optional(), *self._empty()),
            shape_invariants=None,
        )
        return done > 0, outputs

    def _empty(self):
        """Outputs before the first step."""
        return [
            tf.zeros(
                [size if isinstance(size, int) else 0 for size in tensor.shape],
                tensor.dtype,
            )
            for tensor in self._program.trace.graph.outputs
            if self._written.has_outputs
        ]

    def _leaves(self, batch):
        """The tensors of a batch in the order in which the program wants them."""
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


@contextlib.contextmanager
def _first_replica_first():
    """Lets the other replicas ask for their batches after the first one.

    Where what makes a batch raises, who asks first is told so. The others may
    be told that the data have ended, which TensorFlow could take for all.
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


def is_empty(specification):
    """Whether what a specification is of holds no data: a batch's `None`."""
    return isinstance(specification, tf.OptionalSpec) or not (
        tf.nest.flatten(specification, expand_composites=True)
    )


class _without_optimizer:
    """Lets a function that is called run as it was written.

    TensorFlow's graph optimiser would go through each replica's copy of a graph
    that was simplified before it was copied.
    """

    def __enter__(self):
        current = context.context()
        self._before = current.function_call_options
        current.function_call_options = _OPTIONS

    def __exit__(self, *exception):
        context.context().function_call_options = self._before


_OPTIONS = context.FunctionCallOptions(config_proto=CONFIG)
