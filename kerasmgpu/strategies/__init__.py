"""The strategies: TensorFlow's `tf.distribute` with exact Keras steps."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import tensorflow as tf
from absl import logging

from kerasmgpu import _import_on_use, _keras
from kerasmgpu._keras import whereabouts
from kerasmgpu.engine import context, entered
from kerasmgpu.engine import devices as device_choice
from kerasmgpu.engine.extended import LocalExtended, WorkerExtended
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_choice,
    checked_integer,
    shown,
)
from kerasmgpu.job import cluster, job_token, membership
from kerasmgpu.partitioner.lowering.compute_time import ComputeTime
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES, groups_of_mesh
from kerasmgpu.strategies import noted_distributions
from kerasmgpu.strategies.auto_layouts import AutoLayouts
from kerasmgpu.strategies.exact_steps import ExactSteps
from kerasmgpu.strategies.found_layout import on_mesh
from kerasmgpu.strategies.layouts import (
    Distribution,
    Layouts,
    check_micro_batches,
)
from kerasmgpu.strategies.sharding import Shard
from kerasmgpu.strategy_settings import Settings

_import_on_use(__name__)

ALL_REDUCES = (
    "auto",
    "nccl",
    "ring",
    "hierarchical_copy",
    "reduction_to_one_device",
)
"""Names of the algorithms that sum gradients over the replicas."""


class MirroredStrategy(ExactSteps, tf.distribute.MirroredStrategy):
    """`tf.distribute.MirroredStrategy` with the results of one device.

    Models that are built and compiled in its scope end with the weights,
    losses, metrics and predictions of one device at the same global batch.
    Everything else is TensorFlow's: custom loops over `strategy.run` behave as
    under `tf.distribute.MirroredStrategy`.

    Args:
        devices: List of device names such as `["GPU:0", "GPU:1"]`. Default:
            all GPUs, or all logical CPU devices where there is no GPU.
        cross_device_ops: `tf.distribute.CrossDeviceOps` that sums gradients.
            Default: TensorFlow's choice on GPUs (NCCL), and a reduction to
            one device on logical CPU devices.
        batch_norm: `"global"` (default): batch normalisation uses the moments
            of the global batch, as on one device, at the cost of a collective
            per layer; `"per_replica"`: each replica normalises with the
            moments of its rows, and moving averages use the replicas' mean.
        shard: Which variables are divided over the replicas, instead of copied
            to each: `None` (default) or `"none"`; `"optimizer"`: the optimizer's
            slots, and gradients (ZeRO-2); `"weights"`: weights, too (ZeRO-3,
            FSDP); `"embeddings"`: tables of `Embedding` layers, and their
            slots, by rows; or a function of a `strategies.sharding.NewVariable`
            that returns whether to shard it, or the axis. Results are those of
            one device; see `docs/memory.md`.
        min_shard_bytes: Bytes of the smallest variable that `shard` divides.
        shard_over: Number of consecutive replicas over which `shard` divides a
            variable, or `"worker"`, those of a worker. Each such group has all
            variables (hybrid sharding, HSDP): weights are gathered in a group,
            and only sums of each replica's part of the gradients are sent
            between groups. Tables of `Embedding` layers are divided over all
            replicas. Default: all replicas.
        offload: What is kept in host memory: `None` (default) or `"none"`;
            `"optimizer"`: the slots that `shard` divides, which are updated
            there. With it `shard="optimizer"` and `"weights"` move slots on a
            single replica, too.
        micro_batches: Parts in which a replica works through its rows of a
            batch, one after the other, to need less memory: an integer, 1 by
            default, or `"auto"`: as few as fit, twice as many each time a
            step runs out of memory. Results don't depend on it. With `shard`
            each part gathers weights and scatters gradients.
        xla_cache: Folder in which programs that XLA compiles are kept for the
            next start, or `False` for none. Default: the environment variable
            `KERASMGPU_XLA_CACHE`, or `kerasmgpu/xla` in the user's cache
            folder; see `docs/speed.md`.
        recompute: Which values of the forward pass are computed again in the
            backward pass, instead of kept: `None` (default) or `"none"`;
            `"elementwise"`: all that needs no matrix product or convolution;
            `"auto"`: as few as it takes for a step to fit the device, those
            first that free most bytes in least time; or the size that it is to
            fit, such as `"20GiB"`. Results don't depend on it. Not with
            `jit_compile=True`: XLA merges what is computed twice.

    Example:

    ```python
    strategy = kerasmgpu.MirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, y, batch_size=64 * strategy.num_replicas_in_sync)
    ```
    """

    @checked_arguments
    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
        batch_norm: str = "global",
        shard: Shard = None,
        min_shard_bytes: int = MIN_SHARD_BYTES,
        micro_batches: int | str = 1,
        xla_cache: str | os.PathLike[str] | bool | None = None,
        shard_over: int | str | None = None,
        offload: str | None = None,
        recompute: str | None = None,
    ) -> None:
        settings = Settings.of(locals())
        _keras.install()
        context.quiet_collectives()
        _warn_of_a_job_without_this()
        devices = _chosen(devices=devices)
        if cross_device_ops is not None and not isinstance(
            cross_device_ops, tf.distribute.CrossDeviceOps
        ):
            raise InputError(
                "cross_device_ops is a tf.distribute.CrossDeviceOps; "
                "kerasmgpu.strategy(all_reduce=…) takes names. Received: "
                f"cross_device_ops={shown(cross_device_ops)}"
            )
        if cross_device_ops is None:
            cross_device_ops = _cross_device_ops("auto", 1, devices)
        # Skips TensorFlow's constructor, which would make another `extended`.
        super(tf.distribute.MirroredStrategy, self).__init__(
            LocalExtended(self, devices, cross_device_ops)
        )
        self._use(settings)


class MultiWorkerMirroredStrategy(
    ExactSteps, tf.distribute.MultiWorkerMirroredStrategy
):
    """`tf.distribute.MultiWorkerMirroredStrategy` with exact Keras steps.

    Every worker of the job runs the same program. Together they end with the
    results of one device at the same global batch, as under
    `MirroredStrategy`. Make the strategy before anything else uses TensorFlow.
    Arguments that are not listed here are those of `MirroredStrategy`.

    Args:
        cluster_resolver: `tf.distribute.cluster_resolver.ClusterResolver` that
            describes the job and this worker. Default: from kerasmgpu's
            launcher, `TF_CONFIG`, `mpirun`, `torchrun` or Slurm
            (`kerasmgpu.cluster`); without any of these, a job of one worker.
        communication_options: `tf.distribute.experimental.
            CommunicationOptions`. Default: TensorFlow's.
        num_replicas: Replicas of this worker, the same on all workers.
            Default: all its GPUs, or all its logical CPU devices. Workers that
            see the same GPUs divide them.
        devices: Names of this worker's devices, instead of `num_replicas`.
        virtual_devices: Number of logical CPU devices to make and use on this
            worker.
        timeout_seconds: Seconds without a heartbeat after which another worker
            counts as lost; the next collective then raises
            `tf.errors.UnavailableError`, which names the worker. A killed
            process is detected at once. Default: the launcher's, or 30.
        shard: See `MirroredStrategy`. Reading a sharded variable outside of a
            step, as `model.save` does, is a collective: all workers must.

    Raises:
        InputError: If TensorFlow has started, a device is not available, or
            the workers don't connect within `KERASMGPU_START_TIMEOUT_SECONDS`,
            an environment variable (300 s by default): a worker is missing,
            two have the same index, a port is in use or can't be reached.

    Example:

    ```python
    strategy = kerasmgpu.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = build_and_compile_model()
    model.fit(dataset)  # the same data set on all workers, global batches
    ```
    """

    @checked_arguments
    def __init__(
        self,
        cluster_resolver: (
            tf.distribute.cluster_resolver.ClusterResolver | None
        ) = None,
        communication_options: (
            tf.distribute.experimental.CommunicationOptions | None
        ) = None,
        batch_norm: str = "global",
        num_replicas: int | None = None,
        devices: Sequence[str] | None = None,
        virtual_devices: int | None = None,
        timeout_seconds: float | None = None,
        shard: Shard = None,
        min_shard_bytes: int = MIN_SHARD_BYTES,
        micro_batches: int | str = 1,
        xla_cache: str | os.PathLike[str] | bool | None = None,
        shard_over: int | str | None = None,
        offload: str | None = None,
        recompute: str | None = None,
    ) -> None:
        settings = Settings.of(locals())
        _keras.install()
        context.quiet_collectives()
        timeout_seconds = membership.timeout_seconds(timeout_seconds)
        start_seconds = membership.start_timeout_seconds()
        if cluster_resolver is None:
            worker = cluster.from_environment()
        else:
            worker = _worker(cluster_resolver)
        is_first = not membership.has_joined()
        if worker is not None and is_first:
            _require_not_started()
            token = job_token.read()
            worker = membership.meet(
                worker, start_seconds, token, not (devices or virtual_devices)
            )
        elif worker is not None:
            worker = membership.of_the_same_job(worker)
        if cluster_resolver is None:
            cluster_resolver = _resolver(worker)
        if virtual_devices:
            device_choice.make_logical_cpus(virtual_devices)
        else:
            device_choice.grow_memory()

        def choose_devices() -> list[str]:
            return device_choice.choose(num_replicas, devices, virtual_devices)

        if communication_options is None:
            communication_options = (
                tf.distribute.experimental.CommunicationOptions()
            )
        # Skips TensorFlow's constructor, which would choose the devices itself.
        super(tf.distribute.MultiWorkerMirroredStrategy, self).__init__(
            WorkerExtended(
                self,
                cluster_resolver,
                communication_options,
                choose_devices,
                start_seconds,
                timeout_seconds,
            )
        )
        self._use(settings)
        if worker is not None:
            with entered.left():  # Its variables are this process's own.
                self.compute_time = ComputeTime()
        if worker is not None and is_first:
            membership.join(
                self, worker, timeout_seconds, token, whereabouts.of
            )


@checked_arguments
def strategy(
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
    all_reduce: str = "auto",
    num_packs: int = 1,
    batch_norm: str = "global",
    shard: Shard = None,
    min_shard_bytes: int = MIN_SHARD_BYTES,
    micro_batches: int | str = 1,
    xla_cache: str | os.PathLike[str] | bool | None = None,
    distribution: Distribution | None = None,
    strict: bool = False,
    mesh: Sequence[int] | None = None,
    layout: str | Mapping[str, Any] | None = None,
    memory: int | None = None,
    shard_over: int | str | None = None,
    offload: str | None = None,
    recompute: str | None = None,
) -> MirroredStrategy | MultiWorkerMirroredStrategy:
    """Returns the strategy for this process, for recipes and new programs.

    In a job of several workers (started by `python -m kerasmgpu.launch`, Slurm,
    Kubernetes, `mpirun` or `torchrun`) that is `MultiWorkerMirroredStrategy`, else
    `MirroredStrategy`. Arguments that are not listed here are those of
    `MirroredStrategy`.

    Args:
        num_replicas: Number of replicas in this process. Default: all visible
            GPUs; with no GPU, all logical CPU devices (one unless more were
            made).
        devices: Names such as `["GPU:0", "GPU:2"]`, instead of `num_replicas`.
        virtual_devices: Number of logical CPU devices to make and use, for
            development and tests without GPUs. They must be made before
            TensorFlow starts.
        all_reduce: How gradients are summed: `"auto"`, `"nccl"`, `"ring"`
            (between workers), `"hierarchical_copy"` or
            `"reduction_to_one_device"` (in one process).
        num_packs: Number of packs that gradients are concatenated into
            before they are summed (`"nccl"` and `"hierarchical_copy"` in one
            process).
        distribution: `keras.distribution.ModelParallel` or another
            `Distribution`, whose mesh names the devices (in a job, those of all
            workers), and whose layouts divide variables, instead of `shard`.
            `keras.distribution.set_distribution` makes this strategy by itself;
            see `docs/meshes.md`.
        strict: Boolean, whether the first model that trains raises an
            `InputError` if keys of the distribution's layout map match neither
            a variable nor an output of it. Defaults to `False`: a warning each.
        mesh: Sizes of the axes of a mesh of the job's first devices, such as
            `(2, 4)`: rows are divided along the first axis, named `"batch"`,
            variables along the others, `"model"`. Instead of a `distribution`.
            With `shard` instead of `layout`, two axes, `(groups, replicas)`:
            rows are divided along both, variables along the second, as with
            `shard_over=replicas`.
        layout: `"auto"`, or a dictionary of the keys and values of a
            `keras.distribution.LayoutMap`. With `"auto"` a layout is searched
            when a model begins to train, for its first batch; see
            `kerasmgpu.find_layout`.
        memory: Integer, bytes that a device has for variables and slots, for
            `layout="auto"`. Default: no bound.

    Returns:
        A `kerasmgpu.MirroredStrategy` or `MultiWorkerMirroredStrategy`.

    Raises:
        InputError: If a device or the algorithm is not available, or with
            `strict` without a distribution.

    Example:

    ```python
    strategy = kerasmgpu.strategy()                    # every GPU
    strategy = kerasmgpu.strategy(num_replicas=2)      # the first two
    strategy = kerasmgpu.strategy(virtual_devices=4)   # no GPU needed
    strategy = kerasmgpu.strategy(mesh=(2, 4), layout="auto")
    ```
    """
    settings = Settings.of(locals())
    checked_choice(all_reduce, "all_reduce", ALL_REDUCES)
    layouts: Layouts | None = None
    worker = cluster.from_environment()
    if mesh is not None and settings.shard is not None and layout is None:
        num_workers = 1 if worker is None else worker.num_workers
        total, over = groups_of_mesh(
            mesh, num_workers, devices or num_replicas or shard_over
        )
        num_replicas = total // num_workers
        settings = dataclasses.replace(settings, shard_over=over)
        mesh = None
    _check_mesh(mesh, layout, memory, distribution, strict)
    if mesh is not None:
        if virtual_devices is not None:
            device_choice.make_logical_cpus(virtual_devices)
            virtual_devices = None
        given = layout if isinstance(layout, Mapping) else {}
        distribution = on_mesh(mesh, given)
    if distribution is not None:
        if noted_distributions.notes(
            distribution,
            {"memory": memory} if layout == "auto" else None,
            micro_batches=None if micro_batches == 1 else micro_batches,
            offload=offload,
            recompute=recompute,
        ):
            return cast(Any, tf.distribute.get_strategy())
        if num_replicas or devices or shard:
            raise InputError(
                "A distribution names the devices and what they divide. "
                f"Received: num_replicas={num_replicas}, devices={devices}, "
                f"shard={shard!r} and {distribution}; leave those out."
            )
        num_workers = 1 if worker is None else worker.num_workers
        layouts = (
            AutoLayouts(distribution, memory)
            if layout == "auto"
            else Layouts(distribution, strict)
        )
        layouts.check_workers(num_workers)
        check_micro_batches(layouts, micro_batches)
        devices = layouts.devices
        if worker is not None:
            num_replicas, devices = len(devices) // num_workers, None
    keywords = settings.given()
    # Slots that layouts divide are offloaded by `lay_out`.
    keywords["offload"] = offload if layouts is None else None
    made: MirroredStrategy | MultiWorkerMirroredStrategy
    if worker is not None:
        made = MultiWorkerMirroredStrategy(
            communication_options=_communication_options(all_reduce, num_packs),
            num_replicas=num_replicas,
            devices=devices,
            virtual_devices=virtual_devices,
            **keywords,
        )
    else:
        names = _chosen(num_replicas, devices, virtual_devices)
        cross_device_ops = _cross_device_ops(all_reduce, num_packs, names)
        made = MirroredStrategy(names, cross_device_ops, **keywords)
    if layouts is not None:
        made.lay_out(layouts, offload)
        _say_what_workers_read(made)
    return made


def _check_mesh(
    mesh: Sequence[int] | None,
    layout: str | Mapping[str, Any] | None,
    memory: int | None,
    distribution: Distribution | None,
    strict: bool,
) -> None:
    """Validates the arguments of `strategy` that are about a mesh."""
    is_layout = (
        layout is None or layout == "auto" or isinstance(layout, Mapping)
    )
    if not is_layout:
        raise InputError(
            'layout is "auto", or a dictionary of the keys and values of a '
            f"LayoutMap. Received: layout={layout!r}"
        )
    if (mesh is None) != (layout is None) or (
        mesh is not None and distribution is not None
    ):
        raise InputError(
            "mesh and layout go together, and take the place of a distribution. "
            f"Received: mesh={mesh!r}, layout={layout!r}, "
            f"distribution={distribution}; give both, such as mesh=(2, 4), "
            'layout="auto", or a distribution.'
        )
    if layout == "auto" and strict:
        raise InputError(
            'layout="auto" has no keys that strict could be about. Received: '
            "strict=True; leave it out."
        )
    if strict and mesh is None and distribution is None:
        raise InputError(
            "strict is about the keys of a distribution's layout map. "
            "Received: strict=True without a distribution; leave it out."
        )
    if memory is not None:
        checked_integer(memory, "memory", 1)
    if memory is not None and layout != "auto":
        raise InputError(
            'memory bounds what layout="auto" finds. Received: '
            f"memory={memory!r}, layout={layout!r}; leave memory out."
        )


def _say_what_workers_read(strategy: ExactSteps) -> None:
    """Warns a job of a distribution whose data may be sharded already."""
    shards = getattr(strategy.distribution, "auto_shard_dataset", True)
    if strategy.num_workers > 1 and strategy.is_first_worker and not shards:
        logging.warning(
            "kerasmgpu: all %d workers must read the same batches, those of "
            "one device; each takes its rows of them. Data that are sharded "
            "by the distribution's num_processes (1) and data_shard_id (0) "
            "are. Received: auto_shard_dataset=False; on a mesh that "
            "divides rows, data that are sharded by something else need "
            "`options.experimental_distribute.auto_shard_policy` OFF.",
            strategy.num_workers,
        )


_BETWEEN_WORKERS = ("auto", "nccl", "ring")


def _communication_options(
    all_reduce: str, num_packs: int
) -> tf.distribute.experimental.CommunicationOptions:
    """Returns the `CommunicationOptions` of an algorithm between workers."""
    if all_reduce not in _BETWEEN_WORKERS or num_packs != 1:
        raise InputError(
            "Between workers all_reduce is one of "
            f"{', '.join(_BETWEEN_WORKERS)} with num_packs=1. Received: "
            f"all_reduce={all_reduce!r}, num_packs={num_packs!r}"
        )
    implementation = tf.distribute.experimental.CommunicationImplementation
    return tf.distribute.experimental.CommunicationOptions(
        implementation=implementation[all_reduce.upper()]
    )


def _cross_device_ops(
    all_reduce: str, num_packs: int, names: Sequence[str]
) -> tf.distribute.CrossDeviceOps | None:
    """Returns an algorithm's `CrossDeviceOps`; `None`: TensorFlow's choice."""
    num_packs = checked_integer(num_packs, "num_packs", 1)
    if all_reduce == "ring":
        raise InputError(
            "Received: all_reduce='ring', which is for several workers, and "
            "this is one process. Use all_reduce='auto'."
        )
    on_gpus = all("GPU" in name.upper() for name in names)
    if all_reduce == "nccl":
        if not on_gpus or not tf.test.is_built_with_cuda():
            raise InputError(
                "Received: all_reduce='nccl', but NCCL needs NVIDIA GPUs and "
                f"TensorFlow's CUDA build; replicas are on {', '.join(names)}. "
                "Use all_reduce='auto'."
            )
        return tf.distribute.NcclAllReduce(num_packs)
    if all_reduce == "hierarchical_copy":
        return tf.distribute.HierarchicalCopyAllReduce(num_packs)
    if all_reduce == "reduction_to_one_device" or not on_gpus:
        return tf.distribute.ReductionToOneDevice()
    return None


def _resolver(
    worker: cluster.Worker | None,
) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns TensorFlow's cluster resolver; one without workers for `None`."""
    if worker is None:
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({})
        )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(worker.addresses)}),
        task_type="worker",
        task_id=worker.index,
        rpc_layer="grpc",
    )


def _worker(
    resolver: tf.distribute.cluster_resolver.ClusterResolver,
) -> cluster.Worker | None:
    """Returns the worker that a resolver describes; `None` if it is alone."""
    if not isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver):
        raise InputError(
            "cluster_resolver is a tf.distribute.cluster_resolver."
            f"ClusterResolver. Received: cluster_resolver={shown(resolver)}"
        )
    spec = resolver.cluster_spec().as_dict()
    if not spec:
        return None
    task = {"type": resolver.task_type, "index": resolver.task_id}
    worker = cluster.from_tf_config(json.dumps({"cluster": spec, "task": task}))
    return None if worker is None or worker.num_workers == 1 else worker


def _warn_of_a_job_without_this() -> None:
    worker = cluster.from_environment()
    if worker is not None:
        logging.warning(
            "kerasmgpu: this is worker %d of a job of %d, and MirroredStrategy "
            "is for one process: each worker trains a separate model. Call "
            "kerasmgpu.strategy() or kerasmgpu.MultiWorkerMirroredStrategy() "
            "to train one model together; KERASMGPU_SEPARATE=1 says that "
            "separate models are meant.",
            worker.index,
            worker.num_workers,
        )


def _chosen(
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
) -> list[str]:
    """Returns the devices of one process; says so where they are one CPU."""
    names = device_choice.choose(num_replicas, devices, virtual_devices)
    was_told = num_replicas or virtual_devices or devices is not None
    if not was_told and names == ["CPU:0"]:
        logging.warning(
            "kerasmgpu: no GPU is visible: one replica, on the CPU. To try two "
            "replicas here, make two logical CPU devices before anything else "
            "uses TensorFlow: kerasmgpu.strategy(virtual_devices=2). If this "
            "machine has GPUs, `kerasmgpu doctor` says why none is visible."
        )
    return names


def _require_not_started() -> None:
    if context.has_started():
        raise InputError(
            "TensorFlow started before this worker joined its job. Make the "
            "strategy first, before data sets, tensors or models; in a "
            "notebook, use kerasmgpu.notebook_launch."
        )
