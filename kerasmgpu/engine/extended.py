"""Subclasses of TensorFlow's strategy engines (`StrategyExtended`).

TensorFlow's multi-worker engine takes all GPUs of the machine, or one CPU
device; its public API has no worker with several logical CPU devices or with
some of the GPUs. Checked on TensorFlow 2.18 and 2.21.
"""

import contextlib
import itertools
import math
import re
import time
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from kerasmgpu.engine import devices
from kerasmgpu.engine.context import require_collectives
from kerasmgpu.engine.joint_calls import joint_calls
from kerasmgpu.engine.private_names import (
    CollectiveAllReduce,
    CollectiveAllReduceExtended,
    MirroredExtended,
    context,
)
from kerasmgpu.engine.variable_copies import Copies
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.lowering.communicators import Options
from kerasmgpu.partitioner.lowering.cross_device import CrossDeviceReplicas
from kerasmgpu.partitioner.lowering.replicas import (
    Agreement,
    Replicas,
    Together,
)
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.one_device import OneDevice

_in_job = False
_numbers = itertools.count()
_made: "weakref.WeakSet[_QuickCopies]" = weakref.WeakSet()

_HEARTBEAT_FACTOR = 4
"""TensorFlow's heartbeat time-out divided by ours, so that ours expires first.

A worker waits for a heartbeat's answer for half of TensorFlow's time-out."""


_GROUPS = 100
"""Groups of collectives that TensorFlow may number for one strategy."""

_BROADCAST_AS = {
    tf.bfloat16: tf.float32,
    tf.int8: tf.float16,
    tf.uint8: tf.float16,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
    tf.uint64: tf.int64,
}
"""Maps types that TensorFlow can't broadcast to types that hold their values."""

_NOT_TRUSTED = (
    "kerasmgpu: on logical GPUs of one card, a mesh of several axes has ended with "
    'wrong weights (docs/gpus.md, "On one H200"; not explained). Use a mesh of one '
    "axis, MirroredStrategy, or callbacks.Audit, which compares steps with one "
    "device."
)

_SECONDS_OF_A_WAIT = 2.0
"""Longest wait for a key before the next check for a lost worker."""


class _QuickCopies(OneDevice):
    """Creates a variable's copies from the first, with a name per replica.

    TensorFlow prepares an operation per distinct name, in half a millisecond;
    one more copy of the same name takes a tenth of that. The names are not
    visible: a mirrored variable has the name of its first copy.

    Attributes:
        has_scope_of_program: Whether the program opens its strategy's scope by
            itself, and may forget to; otherwise `set_distribution` enters it.
    """

    has_scope_of_program = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _made.add(self)

    def _create_variable(
        self, next_creator: Callable[..., Any], **kwargs: Any
    ) -> Any:
        copies = Copies()

        def create_copy(**kwargs: Any) -> Any:
            # "dense/kernel/replica_1/"; a final slash means an absolute name.
            copy = re.search(r"(replica_\d+)/$", kwargs.get("name") or "")
            if copy is None:
                return copies.first(next_creator(**kwargs))
            if copies.are_plain:
                return copies.copy(copy.group(1))
            kwargs["name"] = copy.group()
            return next_creator(**kwargs)

        return super()._create_variable(create_copy, **kwargs)


class LocalExtended(_QuickCopies, MirroredExtended):
    """TensorFlow's single-process engine, which can also act as one device."""

    def replicas(
        self,
        mesh: Mesh,
        agreement: Agreement | None,
        together: Together | None,
    ) -> Replicas:
        """Returns the partitioner's replicas, with the user's all-reduce."""
        operations = self._cross_device_ops
        if mesh.num == 1:
            return Replicas(mesh)
        if devices.runs_as_gpus():
            return CollectiveReplicas(mesh, Options("ring"))
        if isinstance(operations, CollectiveAllReduce):
            if mesh.num_axes > 1 and _hint(self) == "ring":
                logging.log_first_n(logging.WARNING, _NOT_TRUSTED, 1)
            return CollectiveReplicas(mesh, Options(_hint(self)))
        if type(operations) is tf.distribute.ReductionToOneDevice:
            return Replicas(mesh)
        return CrossDeviceReplicas(mesh, operations)


class WorkerExtended(_QuickCopies, CollectiveAllReduceExtended):
    """TensorFlow's multi-worker engine on chosen devices.

    Args:
        choose_devices: Function that returns this worker's device names, such
            as `["GPU:0"]`; called once the engine has started, since listing
            devices initialises TensorFlow.
        start_seconds: Float, start time-out of the workers' engines.
        silence_seconds: Float, our heartbeat time-out.

    Raises:
        InputError: If the engine of another worker doesn't start in time.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        communication_options: tf.distribute.experimental.CommunicationOptions,
        choose_devices: Callable[[], list[str]],
        start_seconds: float,
        silence_seconds: float,
    ) -> None:
        global _in_job
        self._choose_devices = choose_devices
        self._start_seconds = start_seconds
        self._silence_seconds = silence_seconds
        self._passed = ""
        # TensorFlow numbers a strategy's collectives from this group on; those of
        # another strategy of the process must have other groups.
        self._number = next(_numbers)
        strategy._collective_key_base = _GROUPS * self._number
        if _in_job:  # The job's server runs already, and watches the workers.
            self._std_server_started, self._enable_check_health = True, False
        try:
            super().__init__(
                strategy,
                cluster_resolver=cluster_resolver,
                communication_options=communication_options,
            )
        except tf.errors.DeadlineExceededError as error:
            raise _not_started(error, cluster_resolver, start_seconds) from None
        _in_job = _in_job or self._num_workers > 1

    def replicas(
        self,
        mesh: Mesh,
        agreement: Agreement | None,
        together: Together | None,
    ) -> Replicas:
        """Returns the partitioner's replicas of this worker."""
        if mesh.total == 1:
            return Replicas(mesh)
        seconds = self._communication_options.timeout_seconds
        options = Options(_hint(self), float(seconds or 0))
        return CollectiveReplicas(mesh, options, agreement, together)

    def _update_config_proto(self, config_proto: Any) -> Any:
        """Returns the configuration of this worker's server, with our time-outs.

        By default TensorFlow's coordination service (in 2.18 and 2.21 always
        on between workers) declares the first worker dead after 5 s of silence
        and any other after 10 s. The others wait an hour for the first worker
        to start. It waits for them only with a registration barrier, which
        2.18 lacks: there the first worker has no start time-out.
        """
        config = super()._update_config_proto(config_proto)
        coordination = config.experimental.coordination_config
        coordination.heartbeat_timeout_in_ms = _milliseconds(
            _HEARTBEAT_FACTOR * self._silence_seconds
        )
        coordination.cluster_register_timeout_in_ms = _milliseconds(
            self._start_seconds
        )
        if hasattr(coordination, "cluster_register_with_barrier"):
            coordination.cluster_register_with_barrier = True
        return config

    def _get_variable_creator_initial_value(
        self, replica_id: int, device: Any, primary_var: Any, **kwargs: Any
    ) -> Any:
        """Returns a function of a copy's initial value, the first worker's."""
        create = super()._get_variable_creator_initial_value
        if replica_id or self._num_workers == 1:
            return create(replica_id, device, primary_var, **kwargs)
        given, types = kwargs["initial_value"], []

        def sent() -> tf.Tensor:
            value = given() if callable(given) else given
            value = getattr(value, "wrapped_value", value)  # A checkpoint's.
            value = tf.convert_to_tensor(value, kwargs.get("dtype"))
            types.append(value.dtype)
            return tf.cast(value, _BROADCAST_AS.get(value.dtype, value.dtype))

        settings = {**kwargs, "initial_value": sent, "dtype": None}
        made = create(replica_id, device, primary_var, **settings)
        return lambda: self._broadcast(made, types)

    def _broadcast(
        self, made: Callable[[], tf.Tensor], types: list[tf.DType]
    ) -> tf.Tensor:
        """Returns the value of a new variable; counts a joint call.

        Args:
            made: Function that returns the value, in a type that can be sent.
            types: List, to which `made` appends the variable's type.
        """
        joint_calls.note("new variable")
        value = made()
        return tf.cast(value, types.pop())

    def wait_for_workers(self, name: str, timeout_seconds: float) -> None:
        """Waits until all workers have called this with the same name.

        Each worker sets a key in TensorFlow's coordination service: the first
        worker waits for the keys of all others, which wait for the first one's.
        (While TensorFlow's `wait_at_barrier` waits, no other Python thread
        runs.) A call that has failed may be repeated.

        Raises:
            tf.errors.DeadlineExceededError: If not all workers call it in time.
        """
        joint_calls.note(name)
        name = f"{name} of {self._number}"
        service, others = context.context(), range(1, self._num_workers)
        deadline = time.monotonic() + timeout_seconds

        def wait(worker: int) -> None:
            while True:
                require_collectives()
                left = max(deadline - time.monotonic(), 0.001)
                with contextlib.ExitStack() as is_over:
                    if left > _SECONDS_OF_A_WAIT:
                        late = tf.errors.DeadlineExceededError
                        is_over.enter_context(contextlib.suppress(late))
                    service.get_config_key_value(
                        f"{name}/{worker}",
                        _milliseconds(min(left, _SECONDS_OF_A_WAIT)),
                    )
                    return

        if self._task_id == 0:
            for worker in others:
                wait(worker)
            if self._passed:  # All workers are past that wait.
                service.delete_config_key_value(self._passed)
            self._passed = name
        with contextlib.suppress(tf.errors.AlreadyExistsError):
            service.set_config_key_value(f"{name}/{self._task_id}", "here")
        if self._task_id != 0:
            wait(0)

    def _reduce_to(
        self, reduce_op: Any, value: Any, destinations: Any, options: Any
    ) -> Any:
        self._note("reduction", value)
        return super()._reduce_to(reduce_op, value, destinations, options)

    def _batch_reduce_to(
        self, reduce_op: Any, value_destination_pairs: Any, options: Any
    ) -> list:
        pairs = list(value_destination_pairs)
        self._note("reduction", [value for value, _ in pairs])
        return super()._batch_reduce_to(reduce_op, pairs, options)

    def _gather_to_implementation(
        self, value: Any, destinations: Any, axis: int, options: Any
    ) -> Any:
        self._note("gathering", None)
        return super()._gather_to_implementation(
            value, destinations, axis, options
        )

    def _note(self, what: str, values: Any) -> None:
        """Counts a joint call outside of steps.

        Raises:
            InputError: If only the first worker makes it.
        """
        if self.is_one_device or not tf.executing_eagerly():
            return
        if self.announce is not None and not isinstance(values, tf.Variable):
            raise InputError(
                "What runs on the first worker only may read variables, and "
                "save the model. Received: an evaluation, a prediction or "
                "another collective of all workers; call it on every worker."
            )
        kinds = [
            f"{one.dtype.name}{list(one.shape)}"
            for one in map(_first_value, tf.nest.flatten(values))
            if isinstance(one, tf.Tensor)
        ]
        joint_calls.note(f"{what} of {', '.join(kinds)}")

    def _initialize_local_devices(
        self,
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        worker_device: str,
    ) -> tuple[tuple[str, ...], str]:
        names = self._choose_devices()
        devices = tuple(f"{worker_device}/device:{name}" for name in names)
        return devices, names[0].split(":")[0]


def _milliseconds(seconds: float) -> int:
    """Converts seconds and rounds up: 0 would select TensorFlow's default."""
    return math.ceil(1000 * seconds)


def _first_value(value: Any) -> Any:
    if isinstance(value, tf.distribute.DistributedValues):
        return value.values[0]
    return value


def _not_started(
    error: tf.errors.DeadlineExceededError,
    cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    seconds: float,
) -> InputError:
    """Returns the error of a worker whose engine timed out at the start."""
    addresses = cluster_resolver.cluster_spec().task_address
    # The first worker, if it answers, lists the workers that are missing.
    _, _, names = error.message.partition("timed out task names:")
    missing = re.findall(r"/job:(\w+)/replica:\d+/task:(\d+)", names)
    texts = dict.fromkeys(
        f"{job} {task} ({addresses(job, int(task))})" for job, task in missing
    )
    where = ", ".join(texts) or "the job's first worker"
    return InputError(
        f"TensorFlow did not start within {seconds:g} s on {where}. See the "
        "log of that worker; to wait longer, set "
        "KERASMGPU_START_TIMEOUT_SECONDS"
    )


def _hint(extended: Any) -> str:
    """Returns the collectives' implementation, as their ops' hint."""
    return extended._communication_options.implementation.value.lower()


def in_job() -> bool:
    """Whether this process has joined a job of several workers."""
    return _in_job


def most_replicas() -> int:
    """Returns the most replicas of a strategy whose scope the program opens, or 1."""
    return max(
        (
            made._num_replicas_in_sync
            for made in _made
            if made.has_scope_of_program
        ),
        default=1,
    )
