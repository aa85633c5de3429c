"""Makes a strategy report one replica while a step is traced.

The step then runs as on one device: in the context of replica 0, variables are
replica 0's copies, sums over the replicas are the value itself, and updates of
a variable update that copy. Checked on TensorFlow 2.18 and 2.21.
"""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, numpy_dataset

from kerasmgpu.partitioner.runtime import initial_values, sharded_variable
from kerasmgpu.partitioner.runtime.initial_values import ValueInParts
from kerasmgpu.partitioner.runtime.making import alone, making
from kerasmgpu.partitioner.runtime.repeated import Own, Repeated
from kerasmgpu.partitioner.runtime.sharded_assignments import Copies, agreed
from kerasmgpu.partitioner.runtime.sharded_variable import (
    AxisToShard,
    ShardedVariable,
)

if TYPE_CHECKING:
    from tensorflow.python.distribute.distribute_lib import (
        StrategyExtendedV1 as _Extended,
    )
else:
    _Extended = object

Creator: TypeAlias = Callable[..., tf.Variable]
"""Function that creates a variable from its settings, as keyword arguments; see
`tf.variable_creator_scope`."""


READ_TIMEOUT_SECONDS = 300.0
"""Seconds that a worker waits for the others to read a sharded variable."""


class OneDevice(_Extended):
    """Mixin for the `extended` of a strategy, before TensorFlow's class.

    Attributes:
        axis_to_shard: `AxisToShard`, or `None`: no variable is sharded.
        read_timeout_seconds: Seconds that a worker waits for the others to
            read a sharded variable.
        announce: Function that is called with a variable before a collective
            reads it; `None` if all workers read by themselves.
        times_first_read: Integer, how often `engine.first_worker_reads` ran.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._mode = threading.local()
        self._created: dict[int, weakref.ref] = {}
        self._numbers = itertools.count()
        self.axis_to_shard: AxisToShard | None = None
        self.announce: Callable[[Any], None] | None = None
        self.times_first_read = 0
        self.read_timeout_seconds = READ_TIMEOUT_SECONDS
        super().__init__(*args, **kwargs)

    @property
    def is_one_device(self) -> bool:
        """Whether this thread is inside `one_device`."""
        return bool(getattr(self._mode, "is_one_device", False))

    @property
    def is_alone(self) -> bool:
        """Whether this thread is inside `alone`."""
        return bool(getattr(self._mode, "is_alone", False))

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Context in which this worker does what the others do not.

        Variables that are created there are its own: those of the strategy
        begin with the first worker's values, which is a collective. Keras
        creates some when it saves an optimizer.
        """
        return self._during("is_alone", True)

    @property
    def copies(self) -> Copies | None:
        """Copies of sharded variables while this thread updates a mirrored one.

        Otherwise `None`.
        """
        return getattr(self._mode, "copies", None)

    @property
    def updated(self) -> ShardedVariable | None:
        """The sharded variable that this thread updates, or `None`."""
        return getattr(self._mode, "updated", None)

    @contextlib.contextmanager
    def _during(self, name: str, value: Any) -> Iterator[None]:
        """Context in which an attribute of this thread has a value."""
        before = getattr(self._mode, name, None)
        setattr(self._mode, name, value)
        try:
            yield
        finally:
            setattr(self._mode, name, before)

    @contextlib.contextmanager
    def one_device(self) -> Iterator[None]:
        """Context in which code runs as on one device, as replica 0."""
        with (
            self._during("is_one_device", True),
            tf.distribute.ReplicaContext(self._container_strategy(), 0),
        ):
            yield

    def repeating(
        self, own: Callable[..., Own | None]
    ) -> contextlib.AbstractContextManager[None]:
        """Context in which updates of one kind are traced once, in a step.

        Their results aren't returned.

        Args:
            own: See `repeated.Repeated`.
        """
        return self._during("repeated", Repeated(own))

    def run_on_one_device(
        self,
        function: Callable,
        arguments: Iterable,
        is_first_worker: bool = True,
    ) -> Any:
        """Runs a function eagerly, and copies its assignments to all replicas.

        All workers must call it, since reads of variables are collectives.

        Args:
            is_first_worker: Whether this worker holds the new values of
                variables that are sums over the replicas.
        """
        with alone, contextlib.ExitStack() as stack:
            variables = self._variables_of_all_workers()
            for variable in variables:
                if isinstance(variable, ShardedVariable):
                    stack.enter_context(variable.whole())
            with self._during("whole", stack):
                return self._run_on_copies(
                    function, arguments, is_first_worker, variables
                )

    def _run_on_copies(
        self,
        function: Callable,
        arguments: Iterable,
        is_first_worker: bool,
        variables: Sequence[Any],
    ) -> Any:
        for variable in variables:
            if isinstance(variable, ShardedVariable) or not is_sum(variable):
                continue
            # The function sees the total on the first replica of every worker.
            total = variable.read_value()
            first, *others = variable.values
            first.assign(total)
            for copy in others:
                copy.assign(tf.zeros_like(copy))
        with self.one_device():
            outputs = function(*arguments)
        for variable in list(self._by_number().values()):
            if isinstance(variable, ShardedVariable):
                continue
            first, *others = variable.values
            if not is_sum(variable):
                for copy in others:
                    copy.assign(first)
            elif not is_first_worker:
                first.assign(tf.zeros_like(first))
        return outputs

    def _by_number(self) -> dict[int, Any]:
        """Returns `{number: variable}` of live variables; forgets all others."""
        with making:
            found = {number: ref() for number, ref in self._created.items()}
            alive = {n: one for n, one in found.items() if one is not None}
            self._created = {n: self._created[n] for n in alive}
        return alive

    def _variables_of_all_workers(self) -> list:
        """Returns the variables that are live on all workers, in one order.

        Unused variables live until Python collects garbage, which happens at
        another time on each worker; reading a variable is a collective.
        """
        alive = self._by_number()
        agreement = self._container_strategy().replicas.agreement
        if agreement is None:
            return list(alive.values())
        shared = agreement.common(list(alive))
        return [one for number, one in alive.items() if number in shared]

    def number_of(self, variable: Any) -> int:
        """Returns a variable's number in the scope, equal on all workers."""
        (number,) = (
            n for n, one in self._by_number().items() if one is variable
        )
        return number

    def give(self, number: int) -> None:
        """Takes part in another worker's read of the variable with a number."""
        variable = self._by_number()[number]
        if isinstance(variable, ShardedVariable):
            variable.give()
        else:
            variable.read_value()

    def _note_created(self, variable: Any) -> None:
        self._created[next(self._numbers)] = weakref.ref(variable)

    def _create_variable(self, next_creator: Creator, **kwargs: Any) -> Any:
        with making:
            return self._create(next_creator, kwargs)

    def _create(self, next_creator: Creator, kwargs: dict[str, Any]) -> Any:
        if self.is_alone:
            return next_creator(**{**kwargs, "distribute_strategy": None})
        if is_sum_of_settings(kwargs):
            first = self._container_strategy().replicas.mesh.first
            next_creator = _first_gets_initial_value(next_creator, first)
        sharded = self._create_sharded(kwargs)
        if sharded is not None:
            self._note_created(sharded)
            return sharded
        if isinstance(kwargs.get("colocate_with"), ShardedVariable):
            del kwargs["colocate_with"]  # It has no copies.
        variable = super()._create_variable(next_creator, **kwargs)
        if tf.inside_function():
            _leave_collections(variable)
        if hasattr(variable, "values"):
            self._note_created(variable)
            if not is_sum(variable):
                for name in _OF_ONE_COPY:
                    method = _Method(self, variable, name)
                    setattr(variable, name, method)
            for copy in variable.values:
                # TensorFlow does this, except for variables that are created
                # while a `tf.function` is first traced.
                copy.handle._distributed_container = weakref.ref(variable)
        return variable

    def _create_sharded(self, settings: dict[str, Any]) -> Any:
        """Creates a sharded variable; returns `None` if it is not to be sharded.

        The initial value is computed only once, as drawing it advances seeds:
        if it is needed for copies after all, it is put into `settings`.
        """
        if self.axis_to_shard is None or not self.axis_to_shard.may_shard(
            settings
        ):
            return None
        if isinstance(
            settings.get("colocate_with"), numpy_dataset.SingleDevice
        ):
            return None
        shape = settings.get("shape")
        if shape is not None and not tf.TensorShape(shape).is_fully_defined():
            return None  # Parts of a dynamic shape have no fixed bounds.
        if settings.get("initial_value") is None:
            return None  # One of a SavedModel, which is loaded later.
        devices = self._container_strategy().extended.worker_devices
        with tf.init_scope(), tf.device(devices[0]):
            value = self._agreed_value(settings, devices[0])
            axes = self.axis_to_shard(settings, value)
            if axes is None:
                if isinstance(value, ValueInParts):
                    value = value.whole()
                settings["initial_value"] = value
                return None
        with tf.init_scope():
            variable = sharded_variable.create(
                self,
                axes,
                value,
                settings,
                self.axis_to_shard.is_offloaded(settings),
            )
        stack = getattr(self._mode, "whole", None)
        if stack is not None:  # A function that runs eagerly creates it.
            stack.enter_context(variable.whole())
        return variable

    def _agreed_value(
        self, settings: Mapping[str, Any], device: str
    ) -> tf.Tensor | ValueInParts:
        """Returns the initial value that the first worker has for a variable.

        Of a `ValueInParts`, workers are sent the state only.
        """
        value, dtype = settings["initial_value"], settings.get("dtype")
        if callable(value) and tf.executing_eagerly():
            with initial_values.in_parts():
                value = value()
        sent = {**settings, "initial_value": value}
        if isinstance(value, ValueInParts):
            sent.update(initial_value=value.state, dtype=value.state.dtype)
        given = self._get_variable_creator_initial_value(
            replica_id=0, device=device, primary_var=None, **sent
        )
        given = given() if callable(given) else given
        if isinstance(value, ValueInParts):
            return value.of(tf.convert_to_tensor(given))
        given = getattr(given, "wrapped_value", given)  # A checkpoint's.
        return tf.convert_to_tensor(given, dtype)

    def _validate_colocate_with_variable(self, variable: Any) -> None:
        if not isinstance(variable, ShardedVariable):
            super()._validate_colocate_with_variable(variable)

    @property
    def _num_replicas_in_sync(self) -> int:
        return 1 if self.is_one_device else super()._num_replicas_in_sync

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        if self.is_one_device:
            return 0  # On every worker: the first of its copies.
        return super()._get_local_replica_id(replica_id_in_sync_group)

    def _call_for_each_replica(
        self, fn: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        if self.is_one_device:
            with tf.distribute.ReplicaContext(self._container_strategy(), 0):
                return fn(*args, **kwargs)
        return super()._call_for_each_replica(fn, args, kwargs)

    def _update(
        self,
        var: Any,
        fn: Callable,
        args: tuple,
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        if isinstance(var, ShardedVariable):
            with self._during("updated", var):
                args, kwargs = tf.nest.map_structure(
                    lambda one: agreed(one, var), (args, kwargs)
                )
                return self._updated_once(fn, var, args, kwargs, group)
        if not self.is_one_device:
            with self._during("copies", Copies((args, kwargs))):
                return super()._update(var, fn, args, kwargs, group)
        copy = var.values[0]
        with tf.device(copy.device), distribute_lib.UpdateContext(0):
            return self._updated_once(fn, copy, args, kwargs, group)

    def _updated_once(
        self,
        fn: Callable,
        variable: Any,
        args: tuple,
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        """Calls the function of an update, unless a copy takes its place."""
        repeated = getattr(self._mode, "repeated", None)
        if repeated is None or kwargs or group:
            return fn(variable, *args, **kwargs)
        return repeated.call(fn, variable, *args)

    def _update_non_slot(
        self,
        colocate_with: Any,
        fn: Callable,
        args: tuple,
        kwargs: dict[str, Any],
        group: bool,
    ) -> Any:
        with self._during("copies", Copies((args, kwargs))):
            return super()._update_non_slot(
                colocate_with, fn, args, kwargs, group
            )

    def _reduce_to(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value: Any,
        destinations: Any,
        options: Any,
    ) -> Any:
        if self.is_one_device:
            return value
        if self.announce is not None and isinstance(value, tf.Variable):
            self.announce(value)
        return super()._reduce_to(reduce_op, value, destinations, options)

    def _batch_reduce_to(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value_destination_pairs: Iterable[tuple],
        options: Any,
    ) -> list:
        if self.is_one_device:
            return [value for value, _ in value_destination_pairs]
        return super()._batch_reduce_to(
            reduce_op, value_destination_pairs, options
        )

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        if self.is_one_device:
            return tensor
        return super()._broadcast_to(tensor, destinations)

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        if self.is_one_device:
            return value
        return super()._gather_to_implementation(
            value, destinations, axis, options
        )


_OF_ONE_COPY = (
    "_strided_slice_assign",
    "batch_scatter_update",
    "gather_nd",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_sub",
    "scatter_nd_update",
    "sparse_read",
)
"""Methods of a `tf.Variable` that a variable with several copies lacks.

The first is what `variable[1:3].assign(…)` calls.
"""


_READS = {"gather_nd", "sparse_read"}


class _Method:
    """A method of a variable with several copies, delegated to them.

    In a step, it is called on the first copy; in an update, on the copy that is
    updated. In cross-replica context otherwise, it changes all copies, or reads
    the first. In replica context, and for reads in other traces, the method of
    the variable's class is called; an `AttributeError` is raised if it has none.
    """

    def __init__(self, extended: OneDevice, variable: Any, name: str) -> None:
        # Weak references: the variable holds this object.
        self._extended = weakref.ref(extended)
        self._variable = weakref.ref(variable)
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        variable: Any = self._variable()
        extended: Any = self._extended()
        first, *others = variable.values
        updated = distribute_lib.get_update_replica_id()
        if updated is not None:  # An update calls it once for each copy.
            first, others = variable.values[updated], []
        method = getattr(first, self._name)
        if extended.is_one_device:
            return method(*args, **kwargs)
        in_replica = not tf.distribute.in_cross_replica_context()
        is_traced_read = self._name in _READS and not tf.executing_eagerly()
        if is_traced_read or (in_replica and tf.distribute.has_strategy()):
            # `tf.gather` relies on the `AttributeError` of a missing method.
            method = getattr(type(variable), self._name)
            return method(variable, *args, **kwargs)
        result = method(*args, **kwargs)
        if self._name in _READS:
            return result
        for copy in others:
            with tf.device(copy.device):
                getattr(copy, self._name)(*args, **kwargs)
        return variable


def container(handle: tf.Tensor) -> Any:
    """Returns the variable with copies that a handle belongs to, or `None`."""
    reference = getattr(handle, "_distributed_container", None)
    return None if reference is None else reference()


def captured_variable(outer: Any) -> Any:
    """Returns the variable whose handle a captured tensor is, or `None`."""
    if outer.dtype != tf.resource:
        return None
    variable = container(outer)
    return sharded_variable.variable_of(outer) if variable is None else variable


def content_of(
    handle: Any,
) -> tuple[tuple[int | None, ...] | None, tf.DType] | None:
    """Returns the shape and type of a handle's variable; `None` if unknown.

    The shape is `None` if its rank is unknown.
    """
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    (described,) = data.shape_and_type
    sizes = [None if d.size < 0 else d.size for d in described.shape.dim]
    shape = None if described.shape.unknown_rank else tuple(sizes)
    return shape, tf.as_dtype(described.dtype)


def is_sum(variable: Any) -> bool:
    """Whether a variable's value is the sum of its copies."""
    return (
        variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation == tf.VariableAggregation.SUM
    )


def is_sum_of_settings(settings: Mapping[str, Any]) -> bool:
    """Whether the value of a variable with these settings is its copies' sum."""
    return (
        settings.get("synchronization") == tf.VariableSynchronization.ON_READ
        and settings.get("aggregation") == tf.VariableAggregation.SUM
    )


def _leave_collections(variable: Any) -> None:
    """Removes a variable from the collections of the default graph.

    TensorFlow adds mirrored variables that are created in a trace to them,
    which would keep the variables alive for as long as the process runs.
    """
    graph = tf.compat.v1.get_default_graph()
    keys = tf.compat.v1.GraphKeys
    for name in (keys.GLOBAL_VARIABLES, keys.TRAINABLE_VARIABLES):
        kept = graph.get_collection_ref(name)
        kept[:] = [one for one in kept if one is not variable]


def _first_gets_initial_value(next_creator: Creator, first: int) -> Creator:
    """Returns a creator of copies that start as zeros, except the job's first.

    The first copy gets the initial value. If all did, the variable, which is
    the sum of its copies, would be a multiple of it.
    """
    numbers = itertools.count(first)

    def create_copy(**settings: Any) -> tf.Variable:
        if next(numbers) > 0:
            settings["initial_value"] = _zeros(settings)
        return next_creator(**settings)

    return create_copy


def _zeros(settings: Mapping[str, Any]) -> Callable[[], tf.Tensor]:
    """Returns an initializer of zeros, shaped like a variable's initial value."""
    value, dtype = settings["initial_value"], settings.get("dtype")

    def zeros() -> tf.Tensor:
        whole = value() if callable(value) else value
        return tf.zeros_like(tf.convert_to_tensor(whole, dtype))

    return zeros
