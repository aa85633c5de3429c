"""Traces the one-device step, whose results the replicas must reproduce."""

import contextlib
import copy
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.framework import func_graph as func_graphs

from kerasmgpu.division import AxesToShard
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.printing import graph_text
from kerasmgpu.partitioner.passes.dump import Dump
from kerasmgpu.partitioner.runtime import replaced, traced_function
from kerasmgpu.partitioner.runtime.error_places import error_places
from kerasmgpu.partitioner.runtime.imagined import ImaginedVariable
from kerasmgpu.partitioner.runtime.sharded_variable import (
    variable_of,
)
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step import recompute, sharded_handles, updates
from kerasmgpu.partitioner.step.graph import Sparse
from kerasmgpu.partitioner.step.reading import read
from kerasmgpu.partitioner.step.recompute import Again
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.simplification import (
    ordered,
    without_dead_nodes,
)


class Trace:
    """Traces a function as it runs on one device, and simplifies the graph.

    Attributes:
        leaves: The graph's inputs for the tensors of `arguments`, in the
            order of `tf.nest.flatten(…, expand_composites=True)`.
        sparse: List of `Sparse`, for sparse tensors among the arguments.
        captured: For each other input of the graph, the pair of this input and
            the tensor outside that it captures.
        outputs: The function's return value, with symbolic tensors.
        variables: Trainable variables that it reads.
        compiled: Names of nodes in functions that XLA compiles, added when a
            program is written; see `error_places`.
    """

    def __init__(
        self, function: Callable, arguments: tuple[tf.TypeSpec, ...], name: str
    ) -> None:
        self.name = name
        self.dump = Dump(name)
        func_graph, makes_variables = _func_graph(function, arguments, name)
        if makes_variables:
            # Code that creates variables runs on the first call only.
            func_graph, _ = _func_graph(function, arguments, name)
        # Keeps placeholders, and so the variables' handles, alive.
        self._func_graph = func_graph
        self._arguments = arguments
        self.outputs = func_graph.structured_outputs
        self.variables = func_graph.trainable_variables
        self.compiled: dict[str, dict[str, str]] = {}
        self._original: Trace | None = None
        self._again: tuple[Again, ...] = ()
        self._simplify(lambda outer: variable_of(outer) is not None)

    def _simplify(self, is_sharded: Callable[[Any], bool]) -> None:
        """Sets the simplified graph, its inputs and their captured tensors."""
        self._is_sharded = is_sharded
        graph, self.leaves, self.captured = self._read()
        self.dump("read", lambda: graph_text(graph))
        sharded = {
            tensor for tensor, outer in self.captured if is_sharded(outer)
        }
        graph = sharded_handles.rewritten(graph, sharded)
        graph = updates.without_dead_stores(
            updates.with_forwarded_stores(graph)
        )
        graph = without_dead_nodes(graph)
        self.graph = without_dead_nodes(updates.stacked(graph, sharded))
        # With updates last, all-reduces for updates alone can be grouped.
        self.graph.nodes.sort(key=_is_late)
        self.graph.nodes = ordered(self.graph)
        self.dump("simplify", lambda: graph_text(self.graph))
        self.sparse = list(_sparse(self._arguments, self.leaves))

    def imagined(
        self,
        axes_of: Callable[[Any], AxesToShard],
        is_offloaded: Callable[[Any], bool] = lambda outer: False,
    ) -> "Trace":
        """Returns a copy for imagined replicas; `axes_of` says how it is sharded.

        Args:
            axes_of: Function of a captured tensor that returns the axes along
                which its variable is sharded; see `ImaginedVariable`.
            is_offloaded: Function of it that returns whether the variable's
                parts are on the host.
        """
        other = copy.copy(self.original)
        other._simplify(lambda outer: bool(axes_of(outer)))
        other.captured = [
            (
                tensor,
                ImaginedVariable(outer, axes_of(outer), is_offloaded(outer)),
            )
            for tensor, outer in other.captured
        ]
        return other

    def on_handles(self, handles: Iterable[tf.Tensor]) -> "Trace":
        """Returns the original trace, with other tensors in the captured ones' place.

        Args:
            handles: Handles of variables that are not sharded, and other tensors,
                in the order of `captured`.
        """
        other = copy.copy(self.original)
        other._simplify(lambda outer: False)
        other.captured = [
            (tensor, handle)
            for (tensor, _), handle in zip(other.captured, handles)
        ]
        return other

    def as_function(self, is_compiled: bool) -> list[function_pb2.FunctionDef]:
        """Returns the functions that the original trace is, as TensorFlow runs it.

        Its arguments are `leaves`, then `captured`.

        Args:
            is_compiled: Whether XLA compiles it as one.
        """
        return traced_function.library(self._func_graph, is_compiled)

    @property
    def original(self) -> "Trace":
        """The trace as one device runs it, without nodes that run again."""
        return self._original or self

    def anew(self) -> "Trace":
        """Returns a copy of the original trace, as it was before it was planned."""
        other = copy.copy(self.original)
        other._simplify(other._is_sharded)
        return other

    def running_again(self, again: Again) -> "Trace":
        """Returns a copy that computes nodes of this trace again."""
        other = copy.copy(self)
        other._original = self.original
        other._again = (*self._again, again)
        other._simplify(self._is_sharded)
        for one in other._again:
            recompute.rewrite(other.graph, one)
        other.dump("recompute", lambda: graph_text(other.graph))
        other.captured = [
            (tensor, outer)
            for (tensor, _), (_, outer) in zip(other.captured, self.captured)
        ]
        return other

    def _read(
        self,
    ) -> tuple[
        graphs.Graph, list[graphs.Tensor], list[tuple[graphs.Tensor, tf.Tensor]]
    ]:
        """Returns the graph as it was traced, its `leaves` and its `captured`."""
        source = self._func_graph
        graph = read(source)
        captured = {id(inner): outer for outer, inner in source.captures}
        pairs = [
            (tensor, captured.get(id(placeholder)))
            for placeholder, tensor in zip(source.inputs, graph.inputs)
        ]
        leaves = [tensor for tensor, outer in pairs if outer is None]
        return graph, leaves, [pair for pair in pairs if pair[1] is not None]

    @property
    def is_stale(self) -> bool:
        """Whether variables that it captured have been made anew."""
        return any(replaced.is_replaced(outer) for _, outer in self.captured)

    def without_arguments(self) -> "Trace | None":
        """Returns the side effects of a step whose input is exhausted.

        TensorFlow runs an operation as soon as its inputs are ready. So at the
        end of the data, a step still draws random numbers, counts and decays,
        although there is no batch.

        Returns:
            A `Trace` of the side effects that need no argument; `None` if there
            are none. A loop waits for all its inputs, so it is left out if one
            of these is an argument.
        """
        graph, leaves, captured = self._read()
        graph = _without(graph, leaves)
        if not graph.effects:
            return None
        rest = copy.copy(self)
        rest.graph = graph
        rest.leaves, rest.sparse, rest.captured = [], [], captured
        rest.name, rest.outputs = f"{self.name}_without_arguments", None
        return rest

    def with_places(self) -> error_places:
        """Returns a context that adds the user's lines to errors' messages."""
        return error_places(self._func_graph, self.compiled)

    def packed(self, flat: Iterable[tf.Tensor]) -> Any:
        """Packs tensors in the structure of the function's return value."""
        remaining = iter(flat)
        leaves = tf.nest.flatten(self.outputs, expand_composites=True)
        return tf.nest.pack_sequence_as(
            self.outputs,
            [None if leaf is None else next(remaining) for leaf in leaves],
            expand_composites=True,
        )


def _is_late(node: graphs.Node) -> bool:
    """Whether a node is scheduled last: an update, or a cast of narrow floats.

    In mixed precision a gradient is summed before it is cast.
    """
    return Trait.UPDATES in node.traits or (
        node.type == "Cast" and node.inputs[0].is_narrow
    )


def _without(
    graph: graphs.Graph, missing: Iterable[graphs.Tensor]
) -> graphs.Graph:
    """Returns a graph's side effects that no input of those that are missing feeds.

    The result has nodes of the graph, neither these inputs nor outputs.
    """
    inputs = [tensor for tensor in graph.inputs if tensor not in missing]
    missing, waiting, nodes, effects = set(missing), set(), [], []
    for node in graph.nodes:
        is_late = not waiting.isdisjoint(node.controls)
        if is_late or not missing.isdisjoint(node.inputs):
            waiting.add(node)
            missing.update(node.outputs)
            if is_late or node.type not in _BRANCHES:
                continue
            branch = _branch_without(node, missing)
            if branch is None:
                continue
            node = branch
        nodes.append(node)
        if node.is_stateful and Trait.READ_ONLY not in node.traits:
            effects.append(node)
    return without_dead_nodes(graphs.Graph(nodes, inputs, [], effects))


_BRANCHES = {"Case", "If"}


def _branch_without(
    node: graphs.Node, missing: set[graphs.Tensor]
) -> graphs.Node | None:
    """Returns a branch's side effects that don't depend on missing tensors.

    Gradient accumulation is an example: resetting to zero needs no gradient.

    Returns:
        A branch with these side effects only; `None` if there are none.
    """
    condition, *carried = node.inputs
    if condition in missing:
        return None
    late = [n for n, tensor in enumerate(carried) if tensor in missing]
    bodies = [
        _without(body, [body.inputs[n] for n in late]) for body in node.bodies
    ]
    if not any(body.effects for body in bodies):
        return None
    branch = graphs.new_node(node.type, node.name, node.definition)
    branch.inputs = [
        condition,
        *(tensor for tensor in carried if tensor not in missing),
    ]
    branch.controls, branch.bodies = node.controls, bodies
    return branch


def _sparse(
    arguments: tuple[tf.TypeSpec, ...], leaves: list[graphs.Tensor]
) -> Iterator[Sparse]:
    remaining = iter(leaves)
    for argument in arguments:
        parts = [
            next(remaining)
            for _ in tf.nest.flatten(argument, expand_composites=True)
        ]
        if isinstance(argument, tf.SparseTensorSpec) and argument.shape.rank:
            indices, values, dense_shape = parts
            shape = tuple(argument.shape)
            yield Sparse(indices, values, dense_shape, shape)


_thread = threading.local()


@contextlib.contextmanager
def done_once() -> Iterator[None]:
    """Context in which creating variables causes no second trace.

    For code that only creates variables, if the function does the same whether
    or not they exist already.
    """
    before = getattr(_thread, "is_done_once", False)
    _thread.is_done_once = True
    try:
        yield
    finally:
        _thread.is_done_once = before


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Context without Python's cyclic garbage collection.

    A full collection takes 0.16 s with TensorFlow and Keras imported, as long
    as the first step of a small model, and finds nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _func_graph(
    function: Callable, arguments: tuple[tf.TypeSpec, ...], name: str
) -> tuple[func_graphs.FuncGraph, bool]:
    """Returns a function's graph, and whether it made variables.

    Those made in `done_once` don't count.
    """
    made = []

    def note(
        next_creator: Callable[..., tf.Variable], **settings: Any
    ) -> tf.Variable:
        if not getattr(_thread, "is_done_once", False):
            made.append(True)
        settings["initial_value"] = _lifted(settings["initial_value"])
        return next_creator(**settings)

    with without_garbage_collection(), tf.variable_creator_scope(note):
        func_graph = func_graphs.func_graph_from_py_func(
            name, function, arguments, {}
        )
    return func_graph, bool(made)


def _lifted(value: Any) -> Any:
    """Lifts a symbolic initial value of a new variable out of the trace.

    As `tf.function` does. Keras's Adafactor in a model that isn't built is an
    example: it creates variables from constants. Other values are returned
    unchanged.
    """
    if not tf.is_symbolic_tensor(value):
        return value

    def compute() -> tf.Tensor:
        graph = tf.compat.v1.get_default_graph()
        try:
            return lift_to_graph.lift_to_graph([value], graph)[value]
        except lift_to_graph.UnliftableError as error:
            raise InputError(
                "The initial value of a variable that a step creates must not "
                f"depend on the step's data. Received: {value.name!r}, which is "
                "computed from an argument; create the variable before the step."
            ) from error

    with tf.init_scope():
        return tf.compat.v1.wrap_function(compute, [])()
