"""Assignments to sharded variables, by the context in which they are called.

A sharded variable changes as the copies of a mirrored one do, and outside of
replicas its value is that of the first copy. So in a replica context
(`strategy.run`) an assignment is a merge call: the replicas' values are
aggregated, and the result is assigned once. In `extended.update` of a mirrored
variable, which calls its function once per copy, each call sees a copy of the
sharded variable, and writes the part of its replica. Checked on TensorFlow 2.18
and 2.21.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, values, values_util

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime import compiled_reads

_OF_ONE_VALUE = ("scatter_max", "scatter_min", "scatter_update")
"""Methods that TensorFlow refuses for variables that are sums or means."""

_NOT_IN_REPLICAS = ("batch_scatter_update", "scatter_nd")
"""Prefixes of methods that mirrored variables don't have in replica context."""

_ROUNDING = 64
"""Units in the last place by which values of replicas can differ and still
count as equal."""


class Sharded(Protocol):
    """Interface of `sharded_variable.ShardedVariable` for assignments."""

    name: str
    aggregation: tf.VariableAggregation
    distribute_strategy: Any
    extended: Any
    parts: Sequence[tf.Variable]

    def ref(self) -> Any:
        """Returns a hashable reference to the variable."""

    def read_value(self) -> tf.Tensor:
        """Returns the whole value, as the user's code reads it."""

    def joined(self) -> tf.Tensor:
        """Returns the whole value; with several workers, by a collective."""

    def cut(self, value: tf.Tensor) -> list[tf.Tensor]:
        """Returns this process's parts of a whole value."""

    def changed(
        self, value: tf.Tensor, method: str, args: Any, kwargs: Any
    ) -> tf.Tensor:
        """Returns the whole value to which a method changes `value`."""

    def change_parts(self, method: str, args: Any, kwargs: Any) -> None:
        """Changes all parts as a method of `tf.Variable` changes a variable."""


def change(variable: Sharded, method: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a method that changes a variable, as the context demands.

    Args:
        variable: The variable, outside of a step of one device.

    Returns:
        The variable; in a graph of one worker its new value, unless `kwargs`
        have `read_value=False`.

    Raises:
        InputError: In a function that XLA compiles; in a branch, loop or
            `tf.function` inside of `strategy.run`; outside of graphs, if values
            that must be equal differ between replicas. The variable isn't
            changed then.
        NotImplementedError: If TensorFlow refuses the method for a mirrored
            variable in this context.
    """
    _require_no_compilation(variable)
    extended = variable.extended
    with distribute_lib.enter_or_assert_strategy(variable.distribute_strategy):
        if extended.updated is not variable:
            _require_one_value(variable, method)
        if not distribute_lib.in_cross_replica_context():
            _in_replica(variable, method, args, kwargs)
        elif extended.copies is not None:
            extended.copies.change(variable, method, args, kwargs)
        else:
            args, kwargs = tf.nest.map_structure(
                lambda one: agreed(one, variable), (args, kwargs)
            )
            variable.change_parts(method, args, kwargs)
        is_read = kwargs.get("read_value", True) and not tf.executing_eagerly()
        mesh = variable.distribute_strategy.replicas.mesh
        if is_read and mesh.num_workers == 1:
            return variable.read_value()
        return variable


def _in_replica(
    variable: Sharded, method: str, args: tuple, kwargs: dict
) -> None:
    """Changes a variable once for all replicas, by a merge call."""
    values_util.assert_replica_context(variable.distribute_strategy)
    if method.startswith(_NOT_IN_REPLICAS):
        raise NotImplementedError(
            f"{method} isn't supported in strategy.run. Received: the variable "
            f"{variable.name!r}; call it outside of strategy.run."
        )

    def merge(strategy: Any, *args: Any, **kwargs: Any) -> None:
        if method == "_strided_slice_assign":  # Isn't aggregated.
            args, kwargs = tf.nest.map_structure(_of_first, (args, kwargs))
        else:
            value, *others = args
            args = (_aggregated(variable, strategy, value), *others)
        variable.change_parts(method, args, kwargs)

    try:
        tf.distribute.get_replica_context().merge_call(merge, args, kwargs)
    except RuntimeError as error:
        if "merge_call" not in str(error):
            raise
        raise InputError(
            f"The variable {variable.name!r} is sharded: all replicas change "
            "it together. Received: a change in a branch, loop or tf.function "
            "inside of strategy.run; move it out of there, or leave the "
            "variable whole with shard=function."
        ) from error


def _aggregated(variable: Sharded, strategy: Any, value: Any) -> Any:
    """Aggregates the replicas' values, as for a mirrored variable's copies."""
    if variable.aggregation == tf.VariableAggregation.NONE:
        # Each copy would get its replica's value; outside, the first is read.
        return _of_first(value)
    if (
        variable.aggregation != tf.VariableAggregation.ONLY_FIRST_REPLICA
        and isinstance(value, tf.Variable)
    ):
        value = tf.convert_to_tensor(value)
    return values_util.apply_aggregation(
        strategy, value, variable.aggregation, strategy.replicas.mesh.host
    )


def _of_first(value: Any) -> Any:
    if not isinstance(value, tf.distribute.DistributedValues):
        return value
    return value if isinstance(value, tf.Variable) else value.values[0]


def _require_one_value(variable: Sharded, method: str) -> None:
    sums = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
    if method in _OF_ONE_VALUE and variable.aggregation in sums:
        raise NotImplementedError(
            f"The variable {variable.name!r}: "
            + values_util.scatter_error_msg.format(
                op_name=method, aggregation=variable.aggregation
            )
        )


def _require_no_compilation(variable: Sharded) -> None:
    if compiled_reads.compiled_graph() is not None:
        raise InputError(
            f"The variable {variable.name!r} is sharded: its parts lie on "
            "several devices, and XLA compiles for one. Received: an assignment "
            "in a function with jit_compile=True; assign it outside, return the "
            "value instead, or leave the variable whole with shard=function."
        )


class Copies:
    """Copies of sharded variables while a mirrored variable is updated.

    TensorFlow calls the function of an update once per replica. Each call reads
    and assigns its replica's copies, as with mirrored variables; of each copy,
    only the replica's part is kept.
    """

    def __init__(self, arguments: Any) -> None:
        self._different = [
            one
            for one in tf.nest.flatten(arguments)
            if isinstance(one, values.PerReplica)
        ]
        self._of: dict[Any, list[tf.Tensor]] = {}

    def value(self, variable: Sharded) -> tf.Tensor:
        """Returns the value of this replica's copy.

        Raises:
            InputError: If it was assigned in a branch or loop that has ended.
        """
        if variable.ref() not in self._of:
            before = variable.joined()
            self._of[variable.ref()] = [before] * len(variable.parts)
        value = self._of[variable.ref()][_replica()]
        if tf.is_symbolic_tensor(value) and not _is_visible(value.graph):
            raise InputError(
                f"The variable {variable.name!r} is sharded. Received: a read "
                "after a branch or loop that assigns it, in an update of a "
                "variable; leave it whole with shard=function."
            )
        return value

    def change(
        self, variable: Sharded, method: str, args: Any, kwargs: Any
    ) -> None:
        """Changes this replica's copy, and so its part of the variable."""
        asserts: list[tf.Operation] = []
        for one in self._different:
            asserts += _assert_agreed(one, variable)
        self._different = []
        before = self.value(variable)
        with tf.control_dependencies(asserts):
            value = variable.changed(before, method, args, kwargs)
        number = _replica()
        self._of[variable.ref()][number] = value
        part = variable.parts[number]
        with tf.device(part.device):
            part.assign(variable.cut(value)[number], read_value=False)


def _replica() -> int:
    return distribute_lib.get_update_replica_id()


def _is_visible(graph: tf.Graph) -> bool:
    """Whether tensors of a graph can be used in the current one."""
    return any(graph is own for own in compiled_reads.graphs())


def agreed(value: Any, variable: Sharded) -> Any:
    """Returns an argument of an update, or the first replica's value of it.

    Raises:
        InputError: If replicas' values differ by more than rounding. In a graph,
            running it raises a `tf.errors.InvalidArgumentError` instead.
    """
    if not isinstance(value, values.PerReplica):
        return _of_first(value)
    with tf.control_dependencies(_assert_agreed(value, variable)):
        first = value.values[0]
        if isinstance(first, tf.IndexedSlices):
            return tf.nest.map_structure(
                tf.identity, first, expand_composites=True
            )
        return tf.identity(first) if tf.is_tensor(first) else first


def _assert_agreed(value: Any, variable: Sharded) -> Sequence[tf.Operation]:
    """Returns assertions that replicas' values are equal, up to rounding.

    Outside of a graph there are none, as the values are checked here.

    Raises:
        InputError: If they differ, outside of a graph.
    """
    message = (
        f"The variable {variable.name!r} is sharded, and updated once for all "
        "replicas. Received: an update with a value that differs between "
        "replicas; use model.fit or kerasmgpu.partition, or reduce the value "
        "first."
    )
    first, *others = value.values
    same: Any = True
    for other in others:
        own, its = (
            tf.nest.flatten(one, expand_composites=True)
            for one in (first, other)
        )
        for pair in zip(own, its, strict=True):
            same = tf.logical_and(same, _is_same(*pair))
    if tf.executing_eagerly():
        if not same:
            raise InputError(message)
        return []
    return [tf.debugging.Assert(same, [message])]


def _is_same(first: Any, other: Any) -> Any:
    if not tf.is_tensor(first):
        return first == other
    other = tf.convert_to_tensor(other)  # On the first one's device.
    if not first.shape.is_compatible_with(other.shape):
        return False

    def is_close() -> tf.Tensor:
        if not first.dtype.is_floating:
            return tf.reduce_all(tf.equal(first, other))
        epsilon = _ROUNDING * np.finfo(first.dtype.as_numpy_dtype).eps
        limit = epsilon * tf.reduce_max(tf.abs(first))
        is_near = tf.abs(first - other) <= limit
        is_nan = tf.math.is_nan(first) & tf.math.is_nan(other)
        return tf.reduce_all((first == other) | is_near | is_nan)

    if first.shape.is_fully_defined() and other.shape.is_fully_defined():
        return is_close()
    sizes = tf.equal(tf.shape(first), tf.shape(other))
    return tf.cond(tf.reduce_all(sizes), is_close, lambda: False)
