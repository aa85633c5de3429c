"""Traces what is done for each variable once per kind of variable.

Keras calls the update of each variable by itself. A call takes about five times
as long as copying the operations that it added to the trace. Copies have those
that depend on the variable, in their order, with their attributes and devices.
They share the others, which are common subexpressions. So the step that is
written is the same as if each call were traced, up to names. Checked on
TensorFlow 2.21.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context, record
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops import resource_variable_ops

from kerasmgpu.partitioner.step import records
from kerasmgpu.partitioner.step.records import Trait

Own = Sequence[Any]
"""What a call depends on: its variables, its tensors, and hashable settings."""


class Repeated:
    """Calls of a function in one trace, of which each kind is traced once.

    Args:
        own: Function of a call's arguments that returns its `Own`: two calls
            differ only in that, and change nothing but that. Returns `None` for
            a call that must be traced.
    """

    def __init__(self, own: Callable[..., Own | None]) -> None:
        self._own = own
        self._is_refused = False
        self._recorded: dict[Hashable, _Recorded] = {}
        self._changed: set[Any] = set()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls the function, or copies the operations of a call of its kind.

        Returns:
            The tensor that it returns. Other results aren't copied.
        """
        graph = tf.compat.v1.get_default_graph()
        own = None
        if not self._is_refused and _copies_into(graph):
            own = self._own(*args)
        if own is None or any(map(_is_constant, own)):
            # It may change what other calls read.
            self._recorded.clear()
            return function(*args)
        own = [_first_copy(one) for one in own]
        tensors = [one for one in map(_tensor, own) if one is not None]
        self._changed.update(one.ref() for one in tensors)
        kind = (graph, *map(_kind, own))
        recorded = self._recorded.get(kind)
        if recorded and recorded.shared.isdisjoint(self._changed):
            for one in own:
                if isinstance(one, tf.Variable):
                    resource_variable_ops.variable_accessed(one)
            return recorded.copy(graph, tensors)
        number = len(graph.get_operations())
        result = function(*args)
        recorded = _recorded(graph, number, tensors, result)
        if recorded is None:
            self._is_refused = True
        else:
            self._recorded[kind] = recorded
        return result


def _copies_into(graph: Any) -> bool:
    """Whether copies of operations can take the place of calls.

    Tapes and callbacks (`tf.debugging.enable_check_numerics`) see calls only.
    """
    return (
        isinstance(graph, FuncGraph)
        and not record.could_possibly_record()
        and not context.context().op_callbacks
    )


def _first_copy(one: Any) -> Any:
    """Returns what a variable with a copy per replica is in a trace."""
    return (
        one.values[0]
        if isinstance(one, tf.distribute.DistributedValues)
        else one
    )


def _is_constant(one: Any) -> bool:
    """Whether it is an eager tensor, which a trace may hold as a constant."""
    return isinstance(one, tf.Tensor) and not tf.is_symbolic_tensor(one)


def _tensor(one: Any) -> tf.Tensor | None:
    if isinstance(one, tf.Variable):
        return one.handle
    return one if isinstance(one, tf.Tensor) else None


def _kind(one: Any) -> Hashable:
    if isinstance(one, tf.Variable):
        return type(one), one.dtype, one.shape, one.device, one.trainable
    if isinstance(one, tf.Tensor):
        return one.dtype, one.shape
    return one


@dataclasses.dataclass(frozen=True)
class _Operation:
    """An operation that is copied.

    Attributes:
        inputs: Tensors that all copies share, and numbers of others: those of
            the call first, then the outputs of the operations, in order.
        shapes: Static shapes of its outputs.
    """

    operation: tf.Operation
    name: str
    attributes: dict[str, Any]
    inputs: list[tf.Tensor | int]
    dtypes: list[tf.DType]
    shapes: list[tf.TensorShape]


class _Recorded:
    """The operations that a call added to a graph, and copies need.

    Attributes:
        shared: Handles of variables that the call read, other than its own:
            copies share what was read.
    """

    def __init__(
        self,
        operations: list[_Operation],
        shared: set[Any],
        result: tf.Tensor | int | None,
    ) -> None:
        self._operations = operations
        self._result = result
        self.shared = shared

    def copy(
        self, graph: FuncGraph, tensors: Sequence[tf.Tensor]
    ) -> tf.Tensor | None:
        """Adds the operations for other tensors; returns the call's result."""
        known = list(tensors)
        for one in self._operations:
            operation = graph._create_op_internal(
                one.operation.type,
                [known[x] if isinstance(x, int) else x for x in one.inputs],
                one.dtypes,
                name=one.name,
                attrs=one.attributes,
                op_def=one.operation.op_def,
                compute_device=False,
            )
            operation._set_device(one.operation.device)
            for output, shape in zip(operation.outputs, one.shapes):
                if output.shape != shape:
                    output.set_shape(shape)
            known += operation.outputs
        result = self._result
        return known[result] if isinstance(result, int) else result


def _recorded(
    graph: FuncGraph, number: int, tensors: Sequence[tf.Tensor], result: Any
) -> _Recorded | None:
    """Returns the operations that a call added; `None` if they can't be copied.

    Args:
        number: Number of the graph's operations before the call.
        tensors: Those of the call; each copy has others in their place.
        result: What the call returned.
    """
    captured = {inner.ref(): outer for outer, inner in graph.captures}
    places = {tensor.ref(): place for place, tensor in enumerate(tensors)}
    if len(places) < len(tensors):
        return None
    scope = graph.get_name_scope()
    operations, shared = [], set()
    for operation in graph.get_operations()[number:]:
        if operation.outputs and operation.outputs[0].ref() in captured:
            continue
        if not _can_be_copied(operation):
            return None
        inputs = []
        for tensor in operation.inputs:
            outer = captured.get(tensor.ref(), tensor)
            inputs.append(places.get(outer.ref(), tensor))
            if tensor.dtype == tf.resource and not isinstance(inputs[-1], int):
                shared.add(outer.ref())
        if Trait.UPDATES in _traits(operation):
            if not isinstance(inputs[0], int):
                return None  # All calls change it.
        elif not any(isinstance(one, int) for one in inputs):
            continue  # Copies share it.
        for output in operation.outputs:
            places[output.ref()] = len(places)
        operations.append(
            _Operation(
                operation,
                operation.name.removeprefix(f"{scope}/"),
                dict(operation.node_def.attr.items()),
                inputs,
                [output.dtype for output in operation.outputs],
                [output.shape for output in operation.outputs],
            )
        )
    if not isinstance(result, tf.Tensor):
        return _Recorded(operations, shared, None)
    return _Recorded(operations, shared, places.get(result.ref(), result))


def _traits(operation: tf.Operation) -> frozenset[Trait]:
    return records.record(operation.type).traits


def _can_be_copied(operation: tf.Operation) -> bool:
    """Whether a call with other inputs would add an operation just like this.

    Each random operation has its own seed. Functions capture tensors, `_class`
    names other operations.
    """
    if operation.op_def.is_stateful:
        if _traits(operation).isdisjoint({Trait.READS, Trait.UPDATES}):
            return False
    return (
        operation.type != "Placeholder"
        and not operation.control_inputs
        and all(
            o.dtype not in (tf.resource, tf.variant) for o in operation.outputs
        )
        and not any(
            name == "_class" or value.HasField("func") or value.list.func
            for name, value in operation.node_def.attr.items()
        )
    )
