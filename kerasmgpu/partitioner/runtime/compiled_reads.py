"""Reads of sharded variables that the callers of functions make.

XLA compiles for one device, and refuses variables on others. Between workers a
read is a collective, which the runtime may start in any order. Such a function
therefore gets the whole value of a sharded variable as a further argument: a
capture, which the caller computes at each call. Checked on TensorFlow 2.18 and
2.21.
"""

import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow

_compiled: "weakref.WeakSet[FuncGraph]" = weakref.WeakSet()
_of_data: "weakref.WeakSet[FuncGraph]" = weakref.WeakSet()

_BODIES = (
    control_flow.CondBranchFuncGraph,
    control_flow.WhileBodyFuncGraph,
    control_flow.WhileCondFuncGraph,
)


def mark(graph: FuncGraph) -> None:
    """Records that XLA will compile a graph; called before it is traced."""
    _compiled.add(graph)


def mark_data(graph: FuncGraph) -> None:
    """Records that `tf.data` will call a graph; called before it is traced."""
    _of_data.add(graph)


def graphs() -> Iterator[tf.Graph]:
    """Yields the graph that is being built, then those that enclose it."""
    graph = ops.get_default_graph()
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def compiled_graph() -> FuncGraph | None:
    """Returns the innermost function's graph if XLA compiles it, else `None`.

    XLA also compiles it if it compiles an enclosing function. Bodies of loops
    and branches don't count as functions.
    """
    if tf.executing_eagerly() or not _compiled:
        return None
    is_compiled = any(graph in _compiled for graph in graphs())
    return _innermost() if is_compiled else None


def called_graph() -> FuncGraph | None:
    """Returns the innermost function's graph, unless `tf.data` calls it.

    `tf.data` computes captures once, and not at each call.
    """
    if tf.executing_eagerly() or any(graph in _of_data for graph in graphs()):
        return None
    return _innermost()


def is_in_body() -> bool:
    """Whether the body of a loop or branch is being built."""
    return any(isinstance(graph, _BODIES) for graph in graphs())


def _innermost() -> FuncGraph | None:
    """Returns the innermost graph of a function, no body of a loop or branch."""
    for graph in graphs():
        if not isinstance(graph, _BODIES):
            return graph if isinstance(graph, FuncGraph) else None
    return None


def captured(
    graph: FuncGraph,
    variable: Hashable,
    specification: tf.TensorSpec,
    read: Callable[[], tf.Tensor],
) -> tf.Tensor:
    """Captures the value that a variable has at each call of a function.

    Args:
        variable: Reference to the variable; two reads of it are one capture.
        read: Reads the whole value; called where the function is called.

    Returns:
        The tensor in the graph that stands for the value.
    """
    key = ("kerasmgpu", variable)
    captures = graph.function_captures
    if key not in captures.by_ref_internal:
        with graph.as_default():
            graph.capture_call_time_value(read, specification, key=key)
        captures.add_or_replace(
            key=key,
            external=_Read(read, captures.by_ref_external[key].output_spec),
            internal=captures.by_ref_internal[key],
            tracetype=captures.by_ref_tracetype[key],
            is_by_ref=True,
        )
    return captures.by_ref_internal[key]


class _Read:
    """Reads a variable where a function is called, not outside of all functions.

    TensorFlow's own closure reads outside, before the functions that call this
    one have assigned the variable.
    """

    def __init__(self, read: Callable[[], tf.Tensor], output_spec: Any) -> None:
        self._read = read
        self.output_spec = output_spec

    def __call__(self) -> list[tf.Tensor]:
        return [self._read()]
