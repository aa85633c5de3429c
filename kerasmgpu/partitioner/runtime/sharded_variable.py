"""Variables of which each replica holds one part.

While a step is traced, a sharded variable is one variable of the whole shape
whose value doesn't exist: a handle costs nothing. `program.py` maps this handle
to the handles of the parts. Outside of steps the value is the concatenation of
the parts, and an assigned value is split. With several workers, reading it is a
collective. Checked on TensorFlow 2.18 and 2.21.
"""

import contextlib
import functools
import itertools
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import tensor_callable
from tensorflow.python.distribute import values_util
from tensorflow.python.eager import context, record
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.saved_model import save_context
from tensorflow.python.trackable import base as trackable

from kerasmgpu.division import AxesToShard, divided_axes, elements_of_part
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.sent_types import BYTES_PER_WORD, GATHERED_AS
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime import compiled_reads, sharded_assignments
from kerasmgpu.partitioner.runtime.initial_values import ValueInParts
from kerasmgpu.replica_arithmetic import bounds_of

_GROUP = 60_000
"""Group key of the collectives that read variables outside of steps."""

_MOST_READS = 1 << 14
"""Number of instance keys per variable, used again after as many reads."""

_MOST_VARIABLES = 1 << 17
"""Number of variables with their own instance keys: keys are 32-bit integers."""

_numbers = itertools.count()

_GRADIENT = "KerasmgpuShardedRead"
"""Name of a gradient of `IdentityN(value of the parts, read of the handle)`.
Only the read gets a gradient, since tapes watch the handle."""


@tf.RegisterGradient(_GRADIENT)
def _gradient_of_read(
    operation: tf.Operation, gradient: tf.Tensor, unused: Any
) -> list[Any]:
    del operation, unused
    return [None, gradient]


_OF_PARTS = ("assign", "assign_add", "assign_sub")
"""Methods of a `tf.Variable` that change each element by itself."""

_OF_WHOLE = (
    "_strided_slice_assign",
    "batch_scatter_update",
    "scatter_add",
    "scatter_div",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_nd_add",
    "scatter_nd_max",
    "scatter_nd_min",
    "scatter_nd_sub",
    "scatter_nd_update",
    "scatter_sub",
    "scatter_update",
)
"""Methods of a `tf.Variable` that change some of its elements."""


class AxisToShard(Protocol):
    """Chooses the variables that are sharded, and their axes."""

    def may_shard(self, settings: Mapping[str, Any]) -> bool:
        """Whether a variable with these settings can be sharded at all."""

    def is_offloaded(self, settings: Mapping[str, Any]) -> bool:
        """Whether the parts of a variable with these settings are on the host."""

    def infers_shapes(self) -> bool:
        """Whether code is running only to infer the shapes of its results."""

    def __call__(
        self, settings: Mapping[str, Any], value: tf.Tensor | ValueInParts
    ) -> "AxesToShard | None":
        """Returns the axes along which to shard a variable, or `None`."""


class Extended(Protocol):
    """Interface of the `extended` of a strategy; see `one_device.OneDevice`."""

    axis_to_shard: AxisToShard | None
    announce: Callable[["ShardedVariable"], None] | None
    read_timeout_seconds: float

    @property
    def is_one_device(self) -> bool:
        """Whether code runs as on one device."""

    @property
    def copies(self) -> sharded_assignments.Copies | None:
        """Copies of variables in an update of a mirrored one, or `None`."""

    @property
    def updated(self) -> "ShardedVariable | None":
        """The sharded variable that is being updated, or `None`."""

    def wait_for_workers(self, name: str, seconds: float) -> None:
        """Waits until all workers call it with the same `name`.

        Raises:
            tf.errors.DeadlineExceededError: After so many seconds.
        """

    def _container_strategy(self) -> Any:
        """The strategy."""


class ShardedVariable(resource_variable_ops.UninitializedVariable):
    """A `tf.Variable` whose elements are divided over the replicas.

    Args:
        parts: This process's parts, `tf.Variable`s in the order of replicas.
        axes: For each axis of the mesh, the axis of the variable that is divided
            along it, if any. Parts differ by at most one element along each;
            the first ones are longer.
        is_offloaded: Whether its parts are on the host.

    Attributes:
        shard_axes: `axes`.
        is_captured: Whether a function that is no step, such as a `tf.function`,
            reads or changes its parts.
    """

    exists = False
    """Whether this process has created a sharded variable."""

    def __init__(
        self,
        extended: Extended,
        parts: Sequence[tf.Variable],
        axes: AxesToShard,
        shape: tf.TensorShape,
        settings: Mapping[str, Any],
        is_offloaded: bool = False,
    ) -> None:
        with tf.device(parts[0].device):
            super().__init__(
                trainable=settings.get("trainable"),
                name=settings.get("name"),
                shape=shape,
                dtype=parts[0].dtype,
                constraint=settings.get("constraint"),
                synchronization=settings.get("synchronization"),
                aggregation=settings.get("aggregation"),
                distribute_strategy=extended._container_strategy(),
            )
        self.parts = tuple(parts)
        self.shard_axes = axes
        self.extended = extended
        self.is_offloaded = is_offloaded
        self.is_captured = False
        self._is_read_by_callers = False
        self._is_changed_in_functions = False
        self._is_whole = False
        self._number = next(_numbers) % _MOST_VARIABLES
        self._reads = 0
        self.handle._sharded_variable = weakref.ref(self)
        ShardedVariable.exists = True
        with tf.init_scope():
            self._set_whole(tf.zeros([0], self.dtype))

    @property
    def distribute_strategy(self) -> tf.distribute.Strategy:
        """The strategy in whose scope the variable was created."""
        return self.extended._container_strategy()

    # Reading ------------------------------------------------------------------

    def _read_variable_op(self, no_copy: bool = False) -> tf.Tensor:
        """Reads the whole value, or a copy's; all ways of reading call this."""
        if self.acts_whole:
            return super()._read_variable_op(no_copy)
        resource_variable_ops.variable_accessed(self)
        values_util.mark_as_unsaveable()  # This trace; see `acts_whole`.
        graph = compiled_reads.compiled_graph()
        with record.stop_recording():
            if graph is not None:
                value = self._captured(graph)
            else:
                value = self._value()
        record.record_operation(
            "ReadVariableOp",
            [value],
            [self.handle],
            lambda gradient: [gradient],
        )
        return value

    def _captured(self, graph: Any) -> tf.Tensor:
        """Returns the value as an argument of a function; see `compiled_reads`."""
        self._note_capture()
        specification = tf.TensorSpec(self.shape, self.dtype)
        return compiled_reads.captured(
            graph, self.ref(), specification, self._read_variable_op
        )

    def _value(self) -> tf.Tensor:
        """Returns the whole value, as this context sees it.

        In an update of a mirrored variable it is the value of the replica's
        copy; see `sharded_assignments.Copies`.
        """
        copies = self.extended.copies
        value = (
            self._joined_by_caller() if copies is None else copies.value(self)
        )
        if tf.executing_eagerly():
            return value
        # The gradient of a branch, loop or function is computed from its graph,
        # in which it must reach the handle that tapes watch.
        read = tf.raw_ops.ReadVariableOp(resource=self.handle, dtype=self.dtype)
        graph = tf.compat.v1.get_default_graph()
        with graph.gradient_override_map({"IdentityN": _GRADIENT}):
            return tf.raw_ops.IdentityN(input=[value, read])[0]

    def sparse_read(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Returns rows of the value; see `tf.Variable.sparse_read`."""
        if self.acts_whole:
            return super().sparse_read(indices, name)
        return tf.gather(self.read_value(), indices, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> tf.Tensor:
        """Returns elements of the value; see `tf.Variable.gather_nd`."""
        if self.acts_whole:
            return super().gather_nd(indices, name)
        return tf.gather_nd(self.read_value(), indices, name=name)

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray:
        if self.acts_whole or not self.is_divided_between_workers:
            return np.asarray(self.numpy(), dtype=dtype)
        # `numpy()` would copy the tensor, which nothing else holds.
        array = np.asarray(self.read_value(), dtype=dtype)
        return array.copy() if copy else array

    def is_initialized(self, name: str | None = None) -> tf.Tensor:
        return tf.constant(True, name=name)

    def _joined_by_caller(self) -> tf.Tensor:
        """Returns the whole value, between workers as a function's argument.

        Raises:
            InputError: If a function assigns the variable, and several workers
                have parts of it.
        """
        graph = compiled_reads.called_graph()
        if (
            graph is None
            or self._only_infers_shapes()
            or not self.is_divided_between_workers
        ):
            return self.joined()
        if self._is_changed_in_functions:
            self._refuse_in_functions("a read")
        self._is_read_by_callers = True
        return self._captured(graph)

    def _only_infers_shapes(self) -> bool:
        sharding = self.extended.axis_to_shard
        return (
            sharding is not None
            and sharding.infers_shapes()
            and not tf.executing_eagerly()
        )

    def _refuse_in_functions(self, received: str) -> None:
        raise InputError(
            f"The variable {self.name!r} is sharded over several workers: "
            "tf.functions can read or assign it, not both, since they get its "
            f"value from their callers. Received: {received}; read it in "
            "model.fit, evaluate or predict, in a kerasmgpu.partition function, "
            "or outside of tf.function."
        )

    def joined(self) -> tf.Tensor:
        """Returns the whole value; with several workers, by a collective.

        Raises:
            InputError: In a graph, with several workers.
        """
        if self._only_infers_shapes():
            return tf.zeros(self.shape, self.dtype)  # Nobody sees the value.
        own = self._own()
        if not self.is_divided_between_workers:
            return own
        if not tf.executing_eagerly():
            raise InputError(
                f"The variable {self.name!r} is sharded over several workers: "
                "a map of tf.data, and an update of a mirrored variable, can't "
                "read it. Received: a trace outside of a step; read it in "
                "model.fit, evaluate or predict, in a kerasmgpu.partition "
                "function, or in a tf.function of your own."
            )
        return self._gathered(own)

    def _own(self) -> tf.Tensor:
        """Returns this worker's part: the concatenated parts of its replicas."""
        mesh = self._mesh
        self._note_capture()
        with tf.device(mesh.host):
            parts = [part.value() for part in self.parts]
            return _joined(parts, mesh.block, self.shard_axes)

    def _note_capture(self) -> None:
        self.is_captured |= not tf.executing_eagerly()

    @property
    def is_divided_between_workers(self) -> bool:
        """Whether each worker has a part of the value only."""
        pairs = zip(self._mesh.blocks, self.shard_axes)
        return any(number > 1 and axis is not None for number, axis in pairs)

    def give(self) -> None:
        """Takes part in another worker's read, without using the value."""
        self._all_parts(self._own())

    def _gathered(self, own: tf.Tensor) -> tf.Tensor:
        """Gathers the whole value from all workers' parts."""
        if self.extended.announce is not None:
            self.extended.announce(self)
        gathered, mesh = self._all_parts(own), self._mesh
        with tf.device(mesh.host):
            if self._are_rows(gathered.shape):
                return tf.reshape(gathered, self.shape)
            parts = [
                gathered[number][tuple(map(slice, shape))]
                for number, shape in enumerate(self._shapes())
            ]
            return _joined(parts, mesh.blocks, self.shard_axes)

    def _are_rows(self, gathered: tf.TensorShape) -> bool:
        """Whether gathered parts have the elements of the whole in its order."""
        same_size = gathered.num_elements() == self.shape.num_elements()
        return same_size and set(self.shard_axes) == {0}

    def _shapes(self) -> list[list[int]]:
        """Returns the shape of each worker's part."""
        shapes = []
        for worker in range(self._mesh.num_workers):
            mesh, shape = self._mesh.at(worker), list(self.shape)
            for axis, along in divided_axes(self.shard_axes).items():
                bounds = bounds_of(self.shape[axis], mesh.size(along))
                first = mesh.first_along(along)
                last = first + mesh.num_along(along)
                shape[axis] = bounds[last] - bounds[first]
            shapes.append(shape)
        return shapes

    def _all_parts(self, own: tf.Tensor) -> tf.Tensor:
        """All-gathers the workers' parts, padded to one shape.

        Returns:
            Tensor `[workers, …]`.
        """
        longest = list(map(max, zip(*self._shapes())))
        padding = [[0, most - size] for most, size in zip(longest, own.shape)]
        with tf.device(self._mesh.host):
            padded = _sent(tf.pad(own, padding))
            instance = self._number * _MOST_READS
            instance += self._reads % _MOST_READS
            self._wait_for_workers()
            self._reads += 1
            gathered = tf.raw_ops.CollectiveGatherV2(
                input=padded[None],
                group_size=self._mesh.num_workers,
                group_key=_GROUP,
                instance_key=instance,
                ordering_token=[],
                communication_hint="ring",
            )
            return _received(gathered, own.dtype, longest)

    def _wait_for_workers(self) -> None:
        """Waits until all workers read, since a collective can't be cancelled.

        A collective that times out ends TensorFlow's collectives for the whole
        job, and now and then crashes the process (TensorFlow 2.18 to 2.21
        return the error while the ring's threads still use the operation).

        Raises:
            InputError: If a worker doesn't read within `read_timeout_seconds`.
        """
        seconds = self.extended.read_timeout_seconds
        name = f"kerasmgpu/variable {self._number}/read {self._reads}"
        try:
            self.extended.wait_for_workers(name, seconds)
        except tf.errors.DeadlineExceededError as error:
            workers = self._mesh.num_workers
            raise InputError(
                f"The variable {self.name!r} is sharded over {workers} workers: "
                "all of them must read it. Received: a read that not all other "
                f"workers joined within {seconds:g} s; call it on every worker "
                "(also model.save, get_weights, numpy), and write files on the "
                "first one only."
            ) from error

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole variable."""
        return self.shape.num_elements() * self.dtype.size

    @property
    def most_bytes(self) -> int:
        """Bytes of the part of the replica that holds most."""
        axes, sizes = self.shard_axes, self._mesh.axes
        size: int = self.dtype.size
        return elements_of_part(self.shape, axes, sizes) * size

    def copies_of_parts(self) -> list[list[tf.Variable]]:
        """Returns this process's copies of each part: one on a single axis."""
        copies: dict[tuple[int, ...], list[tf.Variable]] = {}
        for place, part in enumerate(self.parts):
            where = tuple(
                self._mesh.position(place, along)
                for along in divided_axes(self.shard_axes).values()
            )
            copies.setdefault(where, []).append(part)
        return list(copies.values())

    @property
    def _mesh(self) -> Mesh:
        mesh: Mesh = self.extended._container_strategy().replicas.mesh
        return mesh

    @property
    def _boxes(self) -> list[tuple[slice, ...]]:
        """Where the parts of this process's replicas are in the whole value."""
        mesh = self._mesh
        return [
            mesh.part(self.shape, self.shard_axes, place)
            for place in range(mesh.num)
        ]

    @property
    def acts_whole(self) -> bool:
        """Whether code sees one variable of the whole shape."""
        return (
            self._is_whole
            or self.extended.is_one_device
            # A function is traced once more when it is exported.
            or (save_context.in_save_context() and not tf.executing_eagerly())
        )

    # Assigning ----------------------------------------------------------------

    def change_parts(self, method: str, args: Any, kwargs: Any) -> None:
        """Changes all parts as a method of `tf.Variable` changes a variable.

        Methods that change only some elements are called on the whole value:
        with several workers, reading it is a collective.
        """
        self._note_capture()
        if not tf.executing_eagerly() and self.is_divided_between_workers:
            if self._is_read_by_callers:
                self._refuse_in_functions(f"{method} in a tf.function")
            self._is_changed_in_functions = True
        if method in _OF_PARTS:
            value = self._checked(*args)
            for part, own in zip(self.parts, self.cut(value)):
                with tf.device(part.device):
                    getattr(part, method)(own, read_value=False)
        else:
            self._divide(self.changed(self.joined(), method, args, kwargs))

    def changed(
        self, value: tf.Tensor, method: str, args: Any, kwargs: Any
    ) -> tf.Tensor:
        """Returns the whole value to which a method changes `value`."""
        if method == "assign":
            return tf.convert_to_tensor(self._checked(*args))
        if method == "assign_add":
            return value + self._checked(*args)
        if method == "assign_sub":
            return value - self._checked(*args)
        with self._holding(value):
            getattr(super(), method)(*args, **kwargs)
            value = tf.raw_ops.ReadVariableOp(
                resource=self.handle, dtype=self.dtype
            )
        return tf.ensure_shape(value, self.shape)

    def _checked(self, value: Any) -> Any:
        """Converts a value to assign to a tensor, unless it is a NumPy array.

        Raises:
            ValueError: If its shape isn't that of the variable.
        """
        if not isinstance(value, np.ndarray):
            value = tf.convert_to_tensor(value, self.dtype)
        if not self.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"Cannot assign value to variable {self.name!r}: Shape "
                f"mismatch. The variable shape {self.shape}, and the assigned "
                f"value shape {value.shape} are incompatible."
            )
        return value

    def cut(self, value: tf.Tensor) -> list[tf.Tensor]:
        """Returns this process's parts of a whole value."""
        return [value[box] for box in self._boxes]

    # Checkpoints and exports --------------------------------------------------

    def parts_to_save(self) -> list[tuple[tf.Variable, tuple[slice, ...]]]:
        """Returns the parts that no earlier replica of the job has.

        Returns:
            Pairs of a part, and its place in the whole value.
        """
        mesh, axes = self._mesh, self.shard_axes
        unused = tuple(n for n, axis in enumerate(axes) if axis is None)
        pairs = zip(self.parts, self._boxes)
        return [
            pair
            for place, pair in enumerate(pairs)
            if mesh.index(place, unused) == 0
        ]

    def assign_from(self, array: Any) -> None:
        """Assigns each part its place in an array, by slices of the array.

        Args:
            array: A NumPy array of the whole shape, or one in files.
        """
        for part, box in zip(self.parts, self._boxes):
            with tf.device(part.device):
                part.assign(array[box])

    def _serialize_to_tensors(self) -> dict[str, Any]:
        value = tensor_callable.Callable(
            self.joined, dtype=self.dtype, device=self.device
        )
        return {trackable.VARIABLE_VALUE_KEY: value}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Any]) -> Any:
        return self.assign(
            restored_tensors[trackable.VARIABLE_VALUE_KEY], read_value=False
        )

    # Eager steps --------------------------------------------------------------

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Context in which the handle holds the whole value; a collective.

        At the end, the new value is divided over the parts again, but not after
        an exception. Contexts can be nested.
        """
        if self._is_whole:
            yield
            return
        with self._holding(self.joined()):
            self._is_whole = True
            try:
                yield
                value = super()._read_variable_op()
            finally:
                self._is_whole = False
        self._divide(value)

    @contextlib.contextmanager
    def _holding(self, value: tf.Tensor) -> Iterator[None]:
        """Context in which the handle holds a value of the whole shape.

        In a graph it is the handle of another variable, one for each call: what
        this one's handle holds between contexts has another shape, from which
        TensorFlow's optimizations of the graph would infer wrong shapes.
        """
        handle: tf.Tensor = self.handle
        try:
            if not tf.executing_eagerly():
                self._handle = self._handle_of_a_call()
            self._set_whole(value)
            yield
        finally:
            self._handle = handle
            if tf.executing_eagerly():
                self._set_whole(tf.zeros([0], self.dtype))  # Frees the memory.

    def _handle_of_a_call(self) -> tf.Tensor:
        """Returns the handle of a variable that lives as long as it is used."""
        with tf.device(self.device):
            handle = tf.raw_ops.VarHandleOp(
                dtype=self.dtype,
                shape=self.shape,
                shared_name=context.anonymous_name(),
            )
        handle._sharded_variable = weakref.ref(self)
        return handle

    def _set_whole(self, value: tf.Tensor) -> None:
        """Makes the handle hold a value: the whole one, or an empty tensor."""
        tf.raw_ops.AssignVariableOp(
            resource=self.handle, value=value, validate_shape=False
        )

    def _divide(self, value: tf.Tensor) -> None:
        for part, own in zip(self.parts, self.cut(value)):
            part.assign(own)


def _sent(part: tf.Tensor) -> tf.Tensor:
    """Converts a part to the type in which an all-gather sends it."""
    sent = GATHERED_AS.get(part.dtype, part.dtype)
    if part.dtype.size > 1:
        return tf.cast(part, sent)
    flat = tf.reshape(part, [-1])
    padded = tf.pad(flat, [[0, -flat.shape[0] % BYTES_PER_WORD]])
    return tf.bitcast(tf.reshape(padded, [-1, BYTES_PER_WORD]), sent)


def _received(
    gathered: tf.Tensor, dtype: tf.DType, shape: Sequence[int]
) -> tf.Tensor:
    """Undoes `_sent` for all parts; `shape` is that of each."""
    if dtype.size > 1:
        return tf.cast(gathered, dtype)
    num = gathered.shape[0]
    rows = tf.reshape(tf.bitcast(gathered, dtype), [num, -1])
    return tf.reshape(rows[:, : math.prod(shape)], [num, *shape])


def _method(name: str) -> Callable[..., Any]:
    """Returns a method that changes the variable as its context demands."""
    original = getattr(resource_variable_ops.BaseResourceVariable, name)

    @functools.wraps(original)
    def update(self: ShardedVariable, *args: Any, **kwargs: Any) -> Any:
        if self.acts_whole:
            return original(self, *args, **kwargs)
        if not args:  # The value, by whichever name the method has for it.
            first = next(iter(kwargs))
            args = (kwargs.pop(first),)
        return sharded_assignments.change(self, name, *args, **kwargs)

    return update


for _name in (*_OF_PARTS, *_OF_WHOLE):
    setattr(ShardedVariable, _name, _method(_name))


def _joined(
    parts: Sequence[tf.Tensor], numbers: Sequence[int], axes: AxesToShard
) -> tf.Tensor:
    """Concatenates parts of a variable along each of its divided axes.

    Args:
        parts: The parts, in C order of the mesh axes.
        numbers: The number of parts along each axis of the mesh.
        axes: See `ShardedVariable`.
    """
    parts = list(parts)
    for each, axis in reversed(list(zip(numbers, axes))):
        lines = [
            parts[first : first + each] for first in range(0, len(parts), each)
        ]
        parts = [
            line[0] if axis is None else tf.concat(line, axis) for line in lines
        ]
    return parts[0]


def variable_of(handle: tf.Tensor) -> ShardedVariable | None:
    """Returns the sharded variable that a handle belongs to, or `None`."""
    reference = getattr(handle, "_sharded_variable", None)
    return None if reference is None else reference()


def create(
    extended: Extended,
    axes: AxesToShard,
    value: tf.Tensor | ValueInParts,
    settings: Mapping[str, Any],
    is_offloaded: bool = False,
) -> ShardedVariable:
    """Creates a sharded variable.

    Args:
        axes: For each axis of the mesh, the axis of the variable that is divided
            along it, if any.
        value: The whole initial value, equal on all workers.
    """
    strategy: Any = extended._container_strategy()
    devices: Sequence[str] = strategy.extended.worker_devices
    parts = []
    mesh = strategy.replicas.mesh
    if is_offloaded:
        devices = [mesh.host] * len(devices)
    for place, device in enumerate(devices):
        box = mesh.part(value.shape, axes, place)
        with tf.device(device), record.stop_recording():
            if isinstance(value, ValueInParts):
                part = value.part(box)
            else:  # A slice can share the memory of the whole value.
                part = tf.raw_ops.DeepCopy(x=value[box])
            parts.append(
                resource_variable_ops.ResourceVariable(
                    part, trainable=False, name="part", dtype=value.dtype
                )
            )
    return ShardedVariable(
        extended, parts, axes, value.shape, settings, is_offloaded
    )
