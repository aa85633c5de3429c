"""`ExactSteps`, the common base of the strategies: exact Keras steps."""

import contextlib
import dataclasses
import functools
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu import _keras
from kerasmgpu._keras.divided_inputs import of_batches
from kerasmgpu.engine import context, entered, feeds, xla_cache
from kerasmgpu.engine.devices import runs_as_gpus, smallest_memory
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.errors import InputError
from kerasmgpu.flops.trained_step import TrainedStep
from kerasmgpu.job import file_sharding, membership, workers
from kerasmgpu.job.agreement import Agreement
from kerasmgpu.partitioner.lowering.compute_time import ComputeTime
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import MeshAxes
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.partitioner.runtime.execution import (
    BatchwiseExecution,
    Execution,
    RepeatedExecution,
)
from kerasmgpu.partitioner.runtime.function import Partitioned, joined
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE, groups_of
from kerasmgpu.strategies import shares
from kerasmgpu.strategies.auto_layouts import AutoLayouts
from kerasmgpu.strategies.found_layout import FoundLayout
from kerasmgpu.strategies.layouts import Layouts
from kerasmgpu.strategies.recomputation import choices, recomputation_of
from kerasmgpu.strategies.sharding import Sharding
from kerasmgpu.strategy_settings import NAMES, Settings

if TYPE_CHECKING:

    class _Strategy:
        """The methods of `tf.distribute.Strategy` that are used here.

        TensorFlow has no types: with its class as a base, mypy would not see
        that a method of `ExactStrategy` is missing.
        """

        cluster_resolver: Any
        extended: Any
        num_replicas_in_sync: int

        def scope(self) -> Any: ...

        def run(self, fn: Any, args: Any, kwargs: Any, options: Any) -> Any: ...

        def experimental_distribute_dataset(
            self, dataset: Any, options: Any = None
        ) -> Any: ...

        def distribute_datasets_from_function(
            self, dataset_fn: Any, options: Any
        ) -> Any: ...

        def experimental_local_results(self, value: Any) -> Any: ...

    def _implements(strategy: "ExactSteps") -> ExactStrategy:
        return strategy

else:
    _Strategy = tf.distribute.Strategy


class ExactSteps(_Strategy):
    """Adds exact Keras steps to a strategy: a mixin before TensorFlow's class.

    Every worker of a job reads the same global batches, and every replica
    takes its share of them, in the order of the rows. A strategy with several
    workers sets `compute_time`, by which their speeds are compared.

    `_keras/` and `engine/` call it through `engine.exact_strategy`.
    """

    settings: Settings
    """Its keywords that are `Settings`, with `shard_over` as a number."""

    divides_rows: bool = True
    """Whether the rows of a batch are divided over the replicas; without that,
    each of them has the whole batch, and the strategy divides variables only."""

    distribution: Any = None
    """The `keras.distribution.Distribution` that lays out variables, or `None`."""

    layouts: Layouts | None = None
    """How it does; `None` without one."""

    noted_layouts: Layouts | None = None
    """How a distribution does that a command only noted, and that is predicted."""

    compute_time: ComputeTime | None = None

    reduced_bytes_per_step: int | None = None
    """Bytes that a training step all-reduces per replica: gradients, moments,
    and metrics that are read in the step. Tensors whose size depends on the
    number of rows, such as gathered ones, are not counted."""

    gathered_bytes: int = 0
    """Peak bytes of weights that are gathered, and so whole, on each replica,
    in a training step under `shard`."""

    @functools.cached_property
    def trained_step(self) -> TrainedStep:
        """`TrainedStep`, which counts the FLOPs of the last training step."""
        return TrainedStep()

    @property
    def flops_per_step(self) -> int | None:
        """Model FLOPs of a training step of a full global batch.

        Floating-point operations of its products, as counted on the step that
        was traced for one device; what `keras.remat` computes again is left
        out. `None` before the first step, and if they depend on more than the
        number of rows. `docs/flops.md` says what is counted.
        """
        return self.trained_step.per_step

    def scope(self) -> contextlib.AbstractContextManager[Any]:
        """Returns the context in which to build and compile models."""
        # A trace that fails in a `tf.map_fn` or `tf.scan` leaves
        # `caching_device` set (TensorFlow 2.18 to 2.21); later scopes then fail
        # or have no effect.
        variables = tf.compat.v1.get_variable_scope()
        if variables.caching_device is not None and tf.executing_eagerly():
            with tf.Graph().as_default():
                variables.set_caching_device(None)
        if entered.is_in_the_way_of(self):
            return self._scope_outside()
        return super().scope()

    @contextlib.contextmanager
    def _scope_outside(self) -> Iterator[None]:
        with entered.left(), super().scope():
            yield

    def _use(self, settings: Settings) -> None:
        """Divides variables as settings say, once there are devices."""
        over = self._replicas_of_a_group(settings)
        self.settings = dataclasses.replace(settings, shard_over=over)
        if settings.shard is not None:
            self.extended.axis_to_shard = Sharding(
                settings.shard,
                settings.min_shard_bytes,
                lambda: self.replicas.mesh.axes,
            )
        self._offload()

    def _offload(self) -> None:
        """Puts slots that are divided on the host; see `MirroredStrategy`."""
        offload, division = self.settings.offload, self.extended.axis_to_shard
        if offload is not None and division is None:
            raise InputError(
                "offload is about slots that shard or a distribution's layout "
                "divides over the replicas, also over a single one. Received: "
                f"offload={offload!r} without either; give "
                'shard="optimizer" or shard="weights", too.'
            )
        if offload is not None:
            division.offloads = True

    def _replicas_of_a_group(self, settings: Settings) -> int | None:
        """Returns the number that `shard_over` stands for; `None` for all."""
        shard_over = settings.shard_over
        if shard_over is None:
            return None
        total = self.num_replicas_in_sync
        own = total // self.num_workers
        number = own if isinstance(shard_over, str) else shard_over
        if settings.shard is None:
            raise InputError(
                "shard_over is about what shard divides. Received: "
                f"shard_over={shard_over!r} without shard; give both, such as "
                'shard="weights", or leave it out.'
            )
        if number == 1:
            if total == 1:
                return None  # There is nothing to divide in any case.
            raise InputError(
                'shard_over="worker" divides over the replicas of a worker. '
                f"Received: {total} workers of one replica each; give the "
                "number of replicas of a group, such as shard_over=2."
            )
        if total % number or (own % number and number % own):
            raise InputError(
                "shard_over must divide the number of replicas, and a worker's "
                "replicas into whole groups, or groups into whole workers. "
                f"Received: shard_over={number} for {total} replicas, {own} of "
                "each worker."
            )
        return number

    def lay_out(self, layouts: Layouts, offload: str | None = None) -> None:
        """Divides rows and new variables as `layouts` say."""
        self.layouts = layouts
        self.distribution = layouts.distribution
        self.divides_rows = layouts.divides_rows
        if layouts.divides_variables:
            self.extended.axis_to_shard = layouts
        self.settings = dataclasses.replace(
            self.settings, offload=offload, min_shard_bytes=0
        )
        self._offload()

    def check_layouts(self, model: keras.Model) -> None:
        """Warns of keys of the layout map that match nothing in a model."""
        if self.layouts is not None:
            self.layouts.check(model)

    @property
    def found_layout(self) -> FoundLayout | None:
        """The `FoundLayout` of the last model that began to train.

        `None` before, and without `layout="auto"`.
        """
        layouts = self.layouts
        return layouts.found if isinstance(layouts, AutoLayouts) else None

    def lay_out_model(
        self,
        model: keras.Model,
        trace: Callable[[], Program],
        rows: int | None,
    ) -> bool:
        """Finds a layout for a model that begins to train, with `"auto"`.

        Args:
            trace: Function that returns the `Program` of its training step.
            rows: Integer, rows of a global batch; `None` where unknown.

        Returns:
            Whether the step must be traced again, with other inputs.
        """
        if not isinstance(self.layouts, AutoLayouts):
            return False
        rows = ASSUMED_SIZE if rows is None else rows
        return self.layouts.lay_out(model, trace, rows, self)

    # Workers -----------------------------------------------------------------

    @property
    def num_workers(self) -> int:
        """Number of processes of the job."""
        return workers.count(self)

    @property
    def is_first_worker(self) -> bool:
        """Whether this is the first process of the job, which writes files."""
        return workers.is_first(self)

    def any_worker(self, flag: bool) -> bool:
        """Whether `flag` is true on any worker; collective."""
        return workers.any_of(self, flag)

    def of_each_worker(self, number: int) -> list[int]:
        """Returns the numbers of all workers, in their order; collective."""
        return [int(each) for each in workers.gather(self, [number])[:, 0]]

    def from_first_worker(self, data: bytes) -> bytes:
        """Broadcasts the first worker's bytes to all workers; collective.

        Args:
            data: Bytes; ignored on all workers but the first.
        """
        return workers.broadcast(self, data)

    # Steps -------------------------------------------------------------------

    @functools.cached_property
    def replicas(self) -> Replicas:
        """This process's replicas, for the partitioner."""
        devices = self.extended.worker_devices
        host = tf.DeviceSpec.from_string(devices[0])
        host = host.replace(device_type="CPU", device_index=0).to_string()
        mesh = Mesh.on(
            devices,
            host,
            workers.index(self),
            self.num_workers,
            False if runs_as_gpus() else None,
            divides_rows=self.divides_rows,
            axes=self._mesh_axes,
            joins_axes=self.layouts is None,
        )
        is_job = self.num_workers > 1
        repeats = is_job and self.settings.micro_batches == "auto"
        return self.extended.replicas(
            mesh,
            Agreement(self) if is_job else None,
            _Together(self) if repeats else None,
        )

    @property
    def _mesh_axes(self) -> tuple[int, ...]:
        if self.layouts is not None:
            return self.layouts.axes
        total = self.num_replicas_in_sync
        groups = groups_of(total, self.settings.shard_over)
        return (groups, total // groups) if groups > 1 else (total,)

    @property
    def axis_names(self) -> dict[MeshAxes, str]:
        """Names of the mesh axes along which replicas send; empty for one axis.

        With `shard_over` these are `"all replicas"`, `"a group"` and `"the
        groups"`: between replicas of different groups that have equal parts.
        """
        if self.layouts is not None:
            names = self.layouts.axis_names
            return {(axis,): name for axis, name in enumerate(names)}
        if len(self._mesh_axes) == 1:
            return {}
        return {(0, 1): "all replicas", (1,): "a group", (0,): "the groups"}

    @functools.cached_property
    def _partitioned_steps(
        self,
    ) -> weakref.WeakKeyDictionary[Any, dict[str, Partitioned]]:
        return weakref.WeakKeyDictionary()

    def partitioned(
        self,
        function: Callable[..., Any],
        jit_compile: bool = False,
        name: str | None = None,
    ) -> Partitioned:
        """Partitions a function of global batches over the replicas.

        Args:
            function: Function as it runs on one device.
            jit_compile: Whether XLA compiles each replica's part between
                collectives.
            name: String, for messages. Default: the function's name.
        """
        parts, is_training = self.settings.micro_batches, _trains(function)
        layouts = self.layouts or self.noted_layouts
        if layouts is not None and layouts.divides_batches:
            function = of_batches(layouts.distribution, function)
        recompute = recomputation_of(
            self.settings.recompute if is_training else None,
            self._bytes_of_a_replica,
        )
        if recompute is not None and jit_compile:
            logging.warning(
                "kerasmgpu: recompute=%r has no effect with jit_compile=True: "
                "XLA would merge what is computed twice.",
                self.settings.recompute,
            )
            recompute = None
        return Partitioned(
            function,
            self.replicas,
            self._one_device,
            name,
            jit_compile=jit_compile,
            compute_time=self.compute_time if is_training else None,
            micro_batches=1 if parts == "auto" else int(parts),
            repeats=parts == "auto",
            before_compiling=self._before_compiling,
            recompute=choices(recompute, jit_compile),
        )

    def _bytes_of_a_replica(self) -> int | None:
        """Returns bytes for a replica's tensors, as on the smallest device.

        `None` if they are unknown on a worker; collective.
        """
        devices = self.extended.worker_devices
        each = 1 if "GPU" in devices[0] else len(devices)
        own = smallest_memory(devices) or 0
        with tf.init_scope():
            return min(self.of_each_worker(own // each)) or None

    @contextlib.contextmanager
    def _one_device(self) -> Iterator[None]:
        """Context in which a step is traced as on one device."""
        with (
            self.extended.one_device(),
            _keras.distribution_backend.asked(self.distribution),
        ):
            yield

    def _before_compiling(
        self, functions: Collection[str], levels: Mapping[str, int] | None
    ) -> Mapping[str, str] | None:
        """See `partitioner.runtime.program.BeforeCompiling`."""
        together = None
        if levels is not None:
            together = xla_cache.Together(
                levels,
                functools.partial(workers.gather, self),
                self.replicas.mesh.host,
            )
        on_gpus = any("GPU" in name for name in self.extended.worker_devices)
        with tf.init_scope():
            return xla_cache.expect(
                functions, self.settings.xla_cache, on_gpus, together
            )

    def execution(
        self,
        program: Program,
        written: Written,
        steps: int,
        run: Callable[[list[tf.Tensor]], list[tf.Tensor]] | None = None,
    ) -> Execution:
        """Returns a function that takes an iterator and runs several steps.

        Args:
            steps: Number of steps of a call.
            run: Function that is called in the place of `written`, or `None`.
        """
        given = program, written, steps, self.experimental_local_results
        if run is not None:
            return BatchwiseExecution(*given, run=run)
        if program.in_more_parts is not None:
            return RepeatedExecution(*given)
        return Execution(*given)

    def trains(
        self, program: Program, written: Written, rows: int | None
    ) -> None:
        """Records the training step that runs from now on.

        Args:
            rows: Integer, rows of a global batch; `None` where unknown.
        """
        self.trained_step.set(program.trace.original.graph, rows)
        costs = Costs(written.lowered)
        self.reduced_bytes_per_step = costs.summed()
        self.gathered_bytes = costs.gathered()

    def run_on_one_device(
        self, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Runs a function eagerly on one device; returns its result.

        The copies of the variables that it assigns are then updated.

        Args:
            function: Function as it runs on one device.
            *arguments: The function's arguments, with all rows.
        """
        return self.extended.run_on_one_device(
            function, arguments, self.replicas.mesh.first == 0
        )

    def whole(self, batch: Any) -> Any:
        """All-gathers the rows of a batch from `prepared`; collective."""
        return self._gathered(batch)

    @functools.cached_property
    def _gathered(self) -> Partitioned:
        return Partitioned(
            lambda batch: batch, self.replicas, self.extended.one_device
        )

    def run(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        options: tf.distribute.RunOptions | None = None,
    ) -> Any:
        """Runs `fn` on each replica, or a Keras model's step exactly.

        Args:
            fn: Function to run. The step of a `keras.Model` runs partitioned,
                on the global batch; any other function as under TensorFlow.
            args: Positional arguments, possibly per-replica values.
            kwargs: Keyword arguments.
            options: `tf.distribute.RunOptions`.

        Returns:
            For a step of a model, tensors of the global batch; else
            per-replica values as TensorFlow returns them.
        """
        model = _keras.trainer_of(fn)
        if model is None or kwargs or len(args) != 1:
            return super().run(fn, args, kwargs, options)
        steps = self._partitioned_steps.setdefault(model, {})
        if fn.__name__ not in steps:
            steps[fn.__name__] = self.partitioned(fn, model.jit_compile)
        return steps[fn.__name__](self.prepared(args[0]))

    # Feeding -----------------------------------------------------------------

    def experimental_distribute_dataset(
        self,
        dataset: tf.data.Dataset,
        options: tf.distribute.InputOptions | None = None,
    ) -> tf.distribute.DistributedDataset:
        """Splits each batch of `dataset` over the replicas.

        Shares keep the order of the rows and differ by at most one row; if a
        batch has fewer rows than there are replicas, the last ones get none.

        Args:
            dataset: `tf.data.Dataset` of global batches.
            options: `tf.distribute.InputOptions`, as for TensorFlow.

        Returns:
            A `tf.distribute.DistributedDataset`.
        """
        distributed = self._distribute_shares(dataset, options)
        feeds.set_length(distributed, dataset)
        feeds.set_map(
            distributed,
            lambda function: self.experimental_distribute_dataset(
                dataset.map(function), options
            ),
        )
        return distributed

    def dataset_for_steps(
        self, dataset: tf.data.Dataset, in_order: bool = False
    ) -> Feed:
        """Returns the feed of a Keras model's steps.

        On GPUs, shares are copied to each replica's device ahead of the step.
        CPU devices share their memory with the data set: batches stay whole
        and the step splits them, which saves a waiting thread per replica.
        Batches also stay whole if only the step can tell which tensors have
        the batch's rows: with sparse or ragged tensors, tensors of unknown
        rank, or tensors with different first dimensions.

        All workers read the whole data set and take their rows of each batch,
        unless it reads at least as many files as there are workers: then
        `tf.data` shards the files over the workers, unless a
        `keras.distribution` lays out the model.

        Args:
            dataset: `tf.data.Dataset` of global batches.
            in_order: Whether outputs must keep the order of the rows, as those
                of `predict`; files are not sharded then.
        """
        if not self.divides_rows or self.replicas.mesh.num_axes > 1:
            file_sharding.require_whole(dataset, self.num_workers)
            return Feed(dataset)
        if not feeds.are_all_rows(dataset.element_spec):
            return Feed(dataset)
        # `keras.distribution` shards by rows, never by files.
        if not in_order and file_sharding.by_files(
            dataset, self.num_workers, self.distribution is None
        ):
            # The epoch lasts until the worker with the most batches has ended.
            return Feed(
                super().experimental_distribute_dataset(dataset),
                has_own_length=True,
            )
        if self.replicas.mesh.shares_memory:
            return Feed(dataset)
        return Feed(
            self._distribute_shares(dataset, None), dataset.element_spec
        )

    def _distribute_shares(
        self,
        dataset: tf.data.Dataset,
        options: tf.distribute.InputOptions | None,
    ) -> tf.distribute.DistributedDataset:
        """Returns a distributed data set of this worker's shares of batches."""
        num_local = len(self.extended.worker_devices)

        def local_shares(
            context: tf.distribute.InputContext,
        ) -> tf.data.Dataset:
            first = context.input_pipeline_id * num_local
            return shares.split_dataset(
                dataset, self.num_replicas_in_sync, first, num_local
            )

        with _complete_elements(self.extended):
            return super().distribute_datasets_from_function(
                local_shares, options
            )

    def prepared(self, batch: Any) -> Any:
        """Converts an iterator's batch to inputs of a partitioned function."""

        def leaf(value: Any) -> Any:
            if not isinstance(value, tf.distribute.DistributedValues):
                return value
            first = self.experimental_local_results(value)[0]
            if self.num_workers > 1 and _is_composite(first):
                raise InputError(
                    "Shares of sparse and ragged tensors can't be joined "
                    "between workers. Received: a batch of a distributed data "
                    f"set with a {type(first).__name__}; pass batches of the "
                    "data set itself, which is not distributed."
                )
            local = self.experimental_local_results(value)
            return joined(local, are_all=self.num_workers == 1)

        return tf.nest.map_structure(leaf, batch)


_SECONDS_OF_REST = 1.0
"""Time in which TensorFlow's threads leave collectives that were aborted."""


def _former(name: str) -> property:
    """Returns the former attribute of a setting, which warns once; until 0.4."""

    def get(self: ExactSteps) -> Any:
        logging.log_first_n(
            logging.WARNING,
            "kerasmgpu: attributes such as strategy.%s go in 0.4; use "
            "strategy.settings.%s.",
            1,
            name,
            name,
        )
        return getattr(self.settings, name)

    return property(get)


for _name in NAMES:
    setattr(ExactSteps, _name, _former(_name))


class _Together:
    """Lets the workers of a job repeat a step; see `replicas.Together`."""

    def __init__(self, strategy: ExactSteps) -> None:
        self._strategy = strategy
        self._attempts = membership.attempts(strategy.num_workers)
        self.begin = self._attempts.begin
        self.end = self._attempts.end
        self.give_up = self._attempts.give_up
        self.is_given_up = self._attempts.is_given_up

    def start_anew(self, flag: bool) -> bool:
        """Resets collectives once all workers have given up.

        The reset frees the executor and the connections of collectives
        (TensorFlow 2.18 to 2.21), which a worker that is still in its attempt,
        or a thread that is just leaving an aborted collective, would use.

        Returns:
            Boolean, whether `flag` is true on any worker.
        """
        context.abort_step()
        self._meet()
        time.sleep(_SECONDS_OF_REST)
        context.reset_collectives()
        self._meet()
        return self._strategy.any_worker(flag)

    def _meet(self) -> None:
        if not self._attempts.meet():
            raise tf.errors.UnavailableError(
                None, None, "A worker is lost; see the log."
            )


def _trains(function: Callable[..., Any]) -> bool:
    return getattr(function, "__name__", "") == "train_step"


def _is_composite(value: Any) -> bool:
    """Whether a tensor or a `tf.TypeSpec` is sparse or ragged."""
    sparse = (tf.SparseTensor, tf.SparseTensorSpec)
    return isinstance(value, (*sparse, tf.RaggedTensor, tf.RaggedTensorSpec))


@contextlib.contextmanager
def _complete_elements(extended: Any) -> Iterator[None]:
    """Tells TensorFlow that every step has an element for each replica.

    `split_dataset` yields as many shares as there are replicas, so TensorFlow's
    reduction to check whether any replica has data left is not needed.
    """
    name = "experimental_enable_get_next_as_optional"
    previous = getattr(extended, name)
    setattr(extended, name, False)
    try:
        yield
    finally:
        setattr(extended, name, previous)
