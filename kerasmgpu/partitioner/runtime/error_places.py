"""Names the user's line of an operation that fails in a step.

TensorFlow knows the lines of operations that Python has created. Those of a
partitioned program are written as text: their errors say "stack traces
unavailable". They keep the names of the trace, which has the lines. Checked on
TensorFlow 2.18 and 2.21.
"""

import re
import traceback
from collections.abc import Mapping
from types import TracebackType

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from kerasmgpu.partitioner.lowering.content_names import PREFIX

_UNAVAILABLE = "<stack traces unavailable>"
_DETECTED = re.compile(
    r"(Detected at node (\S+) defined at \(most recent call last\):\n)"
    + re.escape(_UNAVAILABLE)
)
_PREFIX = re.compile(r"^(.*/)?(replica_\d+|host)/")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_NODE = re.compile(r"\{\{node (\S+?)\}\}")
_COMPILED = re.compile(rf"{PREFIX}[0-9a-f]+")


class error_places:
    """Context that adds the user's lines to errors in calls of a program.

    Args:
        compiled: For each function that XLA compiles, by name, a dictionary from
            names of its nodes to those that they had.
    """

    def __init__(
        self, func_graph: FuncGraph, compiled: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._func_graph = func_graph
        self._compiled = compiled

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, tf.errors.OpError):
            # As TensorFlow does with the lines that it knows.
            message = _with_origins(error.message, self._compiled)
            error._message = completed(message, self._func_graph)


def _with_origins(
    message: str, compiled: Mapping[str, Mapping[str, str]]
) -> str:
    """Returns a message with the names that nodes had before XLA compiled them."""
    function = _COMPILED.search(message)
    names = compiled.get(function[0], {}) if function else {}
    return re.sub(r"\bnode_\d+\b", lambda n: names.get(n[0], n[0]), message)


def completed(message: str, func_graph: FuncGraph) -> str:
    """Returns an error's message with the user's lines of its operations.

    It is unchanged if these are unknown, or in it already.
    """

    def with_lines(found: re.Match[str]) -> str:
        lines = _lines(found[2], func_graph)
        return found[1] + (lines or _UNAVAILABLE)

    if _DETECTED.search(message):
        return _DETECTED.sub(with_lines, message)
    node = _NODE.search(message)
    lines = node and _lines(node[1], func_graph)
    if not node or not lines or "Detected at node" in message:
        return message
    return (
        f"Graph execution error:\n\nDetected at node {node[1]} defined at (most "
        f"recent call last):\n{lines}\n{message}"
    )


def _lines(name: str, func_graph: FuncGraph) -> str | None:
    """Returns the stack in which an operation was created, or `None`.

    For an operation in a loop or branch, it is the stack of the loop or branch.
    """
    return _stack(name, func_graph) or _stack(_PREFIX.sub("", name), func_graph)


def _stack(name: str, func_graph: FuncGraph) -> str | None:
    outer, rest = name, ""
    while outer:
        # The writer numbers names that are in use.
        for own in (outer, re.sub(r"_\d+$", "", outer)):
            try:
                operation = func_graph.get_operation_by_name(own)
            except KeyError:
                continue
            inner = None
            if rest and operation.type in _CALLS:
                called = operation.get_attr("f").name
                inner = _stack(rest, func_graph._get_function(called).graph)
            frames = traceback.format_list(operation.traceback)
            return inner or "".join(frames)
        outer, _, part = outer.rpartition("/")
        rest = f"{part}/{rest}" if rest else part
    return None
