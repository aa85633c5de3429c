"""A written function in TensorFlow's function library."""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function.concrete_function import (
    ConcreteFunction,
)

from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.lowering.call_options import CONFIG, SERIALIZED
from kerasmgpu.partitioner.runtime.fed_function import fed_function
from kerasmgpu.partitioner.runtime.making import stepping


class Written:
    """A function of all replicas, which TensorFlow's function library gets.

    When it is garbage-collected, the function is removed from the library.

    Args:
        library: List of `FunctionDef`s; the last one is the function.
        captured: Tensors that are passed after the leaves.
        widths: For each leaf the number of tensors that it is passed as.
        has_outputs: Whether it returns what the traced function returns.
        in_turns: The function for the first run, or `None`; see `xla_first_run.py`.
        queues: Maps functions that another worker compiles to the names of the
            queues on which their clusters wait, or `None`.
        one_at_a_time: Lock of its runs; by default a new one if it has
            collectives.
    """

    def __init__(
        self,
        library: list[function_pb2.FunctionDef],
        captured: list[tf.Tensor],
        types: list[tf.DType],
        shapes: list[Any],
        widths: list[int],
        has_outputs: bool,
        lowered: Lowered,
        in_turns: function_pb2.FunctionDef | None = None,
        queues: Mapping[str, str] | None = None,
        one_at_a_time: contextlib.AbstractContextManager | None = None,
    ) -> None:
        self.library = library
        self._one_at_a_time = one_at_a_time or (
            threading.RLock() if self.communicates else contextlib.nullcontext()
        )
        self.has_outputs = has_outputs
        self.queues = queues or {}
        self.lowered = lowered
        self.name = library[-1].signature.name
        self.widths = widths
        self.captured = captured
        self._types = types
        self._shapes = shapes
        self._fed: dict[ConcreteFunction, str] = {}
        for function in library[:-1]:
            self._add(function)
        self.first: Written | None = None
        if in_turns is not None:
            self.first = self.variant([in_turns])

    @functools.cached_property
    def communicates(self) -> bool:
        """Whether it has collectives."""
        return any(
            node.op.startswith(("Collective", "Nccl"))
            for function in self.library
            for node in function.node_def
        )

    @functools.cached_property
    def _function(self) -> "_Name":
        """The function as an attribute, added to the library."""
        self._add(self.library[-1])
        return _Name(self.name)

    def _add(self, function: function_pb2.FunctionDef) -> None:
        """Adds a function to the library while this object exists."""
        context.context().add_function_def(function)
        name = function.signature.name
        finalizer = weakref.finalize(self, _remove_function, name)
        finalizer.atexit = False

    def __call__(
        self,
        tensors: Sequence[tf.Tensor],
        captured: Sequence[tf.Tensor] | None = None,
    ) -> list[tf.Tensor]:
        """Runs the function, or adds a call of it to the graph that is built.

        Args:
            tensors: The leaves, each as one tensor or as one per replica.
            captured: What is passed for the tensors that it captured. Default:
                these.
        """
        inputs = [*tensors, *(self.captured if captured is None else captured)]
        if tf.executing_eagerly():
            with without_grappler():
                return self.take_first().call(inputs)
        outputs = tf.raw_ops.StatefulPartitionedCall(
            args=inputs,
            Tout=self._types,
            f=self._function,
            config_proto=SERIALIZED,
        )
        if not self._types:
            return []
        for tensor, shape in zip(outputs, self._shapes):
            tensor.set_shape(shape)
        return outputs

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Context in which a thread runs the function, without Grappler.

        Runs of a function with collectives come one after the other: members of
        a collective find each other by its key, which is the same in each run.
        """
        with self._one_at_a_time, without_grappler(), stepping:
            yield

    def call(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs the function on all of its inputs, as TensorFlow runs any.

        Not as the operation `StatefulPartitionedCall`: run eagerly, in several
        threads, one run of it gets what another run's devices sent each other.
        """
        self._function  # noqa: B018  Adds it to the library.
        outputs = context.context().call_function(
            self.name.encode(), inputs, len(self._types)
        )
        return outputs or []

    def fed(
        self, feed: ConcreteFunction, arguments: Sequence[tf.Tensor]
    ) -> Callable[[], list[tf.Tensor]]:
        """Returns a function that takes a batch and runs; see `fed_function.py`.

        Args:
            feed: Function that returns the leaves, as `__call__` takes them.
        """
        if feed not in self._fed:
            name = f"{self.name}_fed_{len(self._fed)}"
            self._add(fed_function(feed.function_def, self.library[-1], name))
            self._fed[feed] = name
        inputs = [*arguments, *feed.captured_inputs, *self.captured]
        run = functools.partial(
            context.context().call_function,
            self._fed[feed].encode(),
            inputs,
            len(self._types),
        )
        return lambda: run() or []

    def variant(
        self,
        library: list[function_pb2.FunctionDef],
        more_types: Sequence[tf.DType] = (),
    ) -> "Written":
        """Returns another form of the function, which calls the same functions.

        Args:
            more_types: `tf.DType`s of the outputs that it returns besides.
        """
        return Written(
            library,
            self.captured,
            [*self._types, *more_types],
            [*self._shapes[: len(self._types)], *[None] * len(more_types)],
            self.widths,
            self.has_outputs,
            self.lowered,
            one_at_a_time=self._one_at_a_time,
        )

    def take_first(self) -> "Written":
        """Returns the function of the first run, once; see `xla_first_run.py`."""
        first, self.first = self.first, None
        return first or self


class _Name:
    """The name of a function, with the interface of a function attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add_to_graph(self, graph: tf.Graph) -> None:
        """Does nothing: the function is in the context already."""


class without_grappler:
    """Turns Grappler off for calls of a function.

    It would optimise each replica's copy of a graph that is already simplified.
    """

    def __enter__(self) -> None:
        current = context.context()
        self._before = current.function_call_options
        current.function_call_options = _OPTIONS

    def __exit__(self, *exception: object) -> None:
        context.context().function_call_options = self._before


_OPTIONS = context.FunctionCallOptions(config_proto=CONFIG)


def _remove_function(name: str) -> None:
    if context.context().has_function(name):
        context.context().remove_function(name)
