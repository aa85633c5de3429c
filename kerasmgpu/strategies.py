"""The strategies: TensorFlow's engine with an exact Keras training step."""

import contextlib

import tensorflow as tf

from kerasmgpu import _keras
from kerasmgpu import devices as device_choice
from kerasmgpu.errors import InputError
from kerasmgpu.step import metrics, split, state
from kerasmgpu.step.replica import Replica, running

ALL_REDUCES = ("auto", "nccl", "hierarchical_copy", "reduction_to_one_device")
"""Names of the algorithms that sum gradients over the replicas."""


class MirroredStrategy(tf.distribute.MirroredStrategy):
    """`tf.distribute.MirroredStrategy` that trains the model of one device.

    Models that are built and compiled in its scope end with the weights,
    losses, metrics and predictions that one device gives at the same global
    batch. Everything else is TensorFlow's: custom loops over `strategy.run`
    behave as under `tf.distribute.MirroredStrategy`.

    Args:
        devices: List of device names such as `["GPU:0", "GPU:1"]`. Default:
            all GPUs, or all logical CPU devices where there is no GPU.
        cross_device_ops: `tf.distribute.CrossDeviceOps` that sums gradients.
            Default: TensorFlow's choice on GPUs (NCCL), and a reduction on
            one device where CPU devices stand in for them.
        random: `"global"` (default): random layers give every row what it
            would get on one device; `"per_replica"`: replicas draw
            independently, which saves drawing for the rows of the others.
        batch_norm: `"global"` (default): batch normalisation uses the moments
            of the global batch, one collective per layer; `"per_replica"`:
            each replica normalises with its own rows, without collectives.

    Example:

    ```python
    strategy = kerasmgpu.MirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, y, batch_size=64 * strategy.num_replicas_in_sync)
    ```
    """

    def __init__(
        self,
        devices=None,
        cross_device_ops=None,
        random="global",
        batch_norm="global",
    ):
        _keras.install()
        devices = device_choice.choose(devices=devices)
        if cross_device_ops is None:
            cross_device_ops = _cross_device_ops("auto", 1, devices)
        super().__init__(devices=devices, cross_device_ops=cross_device_ops)
        self._random_mode = _one_of("random", random, _SCOPES)
        self._batch_norm = _one_of("batch_norm", batch_norm, _SCOPES)

    def experimental_distribute_dataset(self, dataset, options=None):
        """Splits each batch of `dataset` over the replicas.

        Shares keep the order of the rows and differ by at most one row; where
        a batch has fewer rows than there are replicas, some get none.

        Args:
            dataset: `tf.data.Dataset` of global batches.
            options: `tf.distribute.InputOptions`, as for TensorFlow.

        Returns:
            A `tf.distribute.DistributedDataset`.
        """
        shares = split.split_dataset(dataset, self.num_replicas_in_sync)
        with _complete_elements(self.extended):
            distributed = self.distribute_datasets_from_function(
                lambda context: shares, options
            )
        distributed.batch_specification = dataset.element_spec
        return distributed

    def dataset_for_steps(self, dataset):
        """What feeds a Keras model's steps from a data set of global batches.

        On GPUs, shares are copied to each replica's device ahead of the step.
        CPU devices share their memory with the data set: batches stay whole
        and the step cuts them, without a thread per replica that waits.
        """
        if all("CPU" in device for device in self.extended.worker_devices):
            return dataset
        return self.experimental_distribute_dataset(dataset)

    def batch_specification(self, distributed_dataset):
        """The `element_spec` of the global batches of a data set.

        For one that came from `distribute_datasets_from_function`, that of a
        replica's batch, which has the same shapes but for the number of rows.
        """
        specification = getattr(
            distributed_dataset, "batch_specification", None
        )
        if specification is not None:
            return specification
        if isinstance(distributed_dataset, tf.data.Dataset):
            return distributed_dataset.element_spec
        return tf.nest.map_structure(
            lambda leaf: getattr(leaf, "_value_specs", (leaf,))[0],
            distributed_dataset.element_spec,
        )

    def run(self, fn, args=(), kwargs=None, options=None):
        """Runs `fn` on each replica; a Keras model's step exactly.

        Args:
            fn: Function to run. The steps of a `keras.Model` are run on
                shares of the global batch; any other as TensorFlow does.
            args: Positional arguments, per-replica values among them.
            kwargs: Keyword arguments.
            options: `tf.distribute.RunOptions`.

        Returns:
            For a step of a model, tensors of the global batch; else
            per-replica values as TensorFlow returns them.
        """
        model = _keras.trainer_of(fn)
        if model is None or self.num_replicas_in_sync == 1 or len(args) != 1:
            return super().run(fn, args, kwargs, options)
        (batch,) = args
        is_split = any(
            isinstance(leaf, tf.distribute.DistributedValues)
            for leaf in tf.nest.flatten(batch)
        )
        if not is_split:
            batch = split.whole_batch(batch)
        bounds = self._bounds(batch, is_split)
        assigned = set()
        step = self._exact_step(model, fn, bounds, is_split, assigned)
        outputs = super().run(step, (batch,), kwargs, options)
        with self.scope():
            states = [
                (layer, variables)
                for layer, variables in _keras.layer_states(model)
                if not _keras.is_alike(layer, self._batch_norm)
            ]
            state.average(self, states, assigned, bounds)
            if getattr(fn, "__name__", "") in ("train_step", "test_step"):
                return metrics.results(self, model, outputs, bounds, assigned)
            return self._in_order(outputs, bounds)

    def _exact_step(self, model, fn, bounds, is_split, assigned):
        """A function of a replica's share that runs `fn` exactly on it."""
        num_replicas = self.num_replicas_in_sync
        settings = _keras.thread_state()

        def step(share):
            context = tf.distribute.get_replica_context()
            index = int(tf.get_static_value(context.replica_id_in_sync_group))
            if not is_split:
                share = split.share(share, index, num_replicas)
            start, end = bounds[index]
            replica = Replica(
                index,
                num_replicas,
                rows=end - start,
                first_row=start,
                global_rows=bounds[-1][1],
                static_rows=split.static_rows(share),
                on_cpu="CPU" in self.extended.worker_devices[index],
                random_mode=self._random_mode,
                batch_norm=self._batch_norm,
                compiled_model=model if model.jit_compile else None,
                assigned=assigned,
            )
            _keras.set_thread_state(settings)
            with running(replica):
                return fn(share)

        return tf.autograph.experimental.do_not_convert(step)

    def _bounds(self, batch, is_split):
        """First and end row of every replica's share in the global batch."""
        num_replicas = self.num_replicas_in_sync
        if not is_split:
            rows = split.batch_rows(batch)
            if rows is None:
                raise InputError(
                    "A step needs a batch with at least one array of rows to "
                    "split over the replicas. Received: scalars only"
                )
            return [
                split.share_bounds(rows, index, num_replicas)
                for index in range(num_replicas)
            ]
        for leaf in tf.nest.flatten(batch):
            shares = self.experimental_local_results(leaf)
            if split.has_rows(shares[0]):
                break
        bounds, end = [], tf.constant(0)
        for rows in map(split.num_rows, shares):
            bounds.append((end, end + rows))
            end = end + rows
        return bounds

    def _in_order(self, outputs, bounds):
        """Outputs of all replicas, concatenated in the order of the rows.

        A scalar output is taken for a mean over the rows.
        """
        rows = tf.stack([end - start for start, end in bounds])

        def join(value):
            shares = self.experimental_local_results(value)
            if isinstance(shares[0], tf.SparseTensor):
                return tf.sparse.concat(0, shares)
            if shares[0].shape.rank == 0:
                return metrics.mean_over_rows(shares, rows)
            return tf.concat(shares, 0)

        return tf.nest.map_structure(join, outputs)


def strategy(
    num_replicas=None,
    devices=None,
    virtual_devices=None,
    all_reduce="auto",
    num_packs=1,
    random="global",
    batch_norm="global",
):
    """The strategy for this machine: what recipes and new programs call.

    Args:
        num_replicas: Number of replicas. Default: all visible GPUs; with no
            GPU, one replica on the CPU.
        devices: Names instead of a number, such as `["GPU:0", "GPU:2"]`.
        virtual_devices: Number of logical CPU devices to make and use, for
            development and tests without GPUs. Must be asked for before
            TensorFlow starts.
        all_reduce: How gradients are summed: `"auto"`, `"nccl"`,
            `"hierarchical_copy"` or `"reduction_to_one_device"`.
        num_packs: Number of packs that gradients are concatenated into
            before they are summed (`"nccl"` and `"hierarchical_copy"`).
        random: See `MirroredStrategy`.
        batch_norm: See `MirroredStrategy`.

    Returns:
        A `kerasmgpu.MirroredStrategy`.

    Raises:
        InputError: If the devices or the algorithm can't be had.

    Example:

    ```python
    strategy = kerasmgpu.strategy()                    # every GPU
    strategy = kerasmgpu.strategy(num_replicas=2)      # the first two
    strategy = kerasmgpu.strategy(virtual_devices=4)   # no GPU needed
    ```
    """
    names = device_choice.choose(num_replicas, devices, virtual_devices)
    return MirroredStrategy(
        names,
        cross_device_ops=_cross_device_ops(all_reduce, num_packs, names),
        random=random,
        batch_norm=batch_norm,
    )


_SCOPES = ("global", "per_replica")


def _cross_device_ops(all_reduce, num_packs, names):
    """The `tf.distribute.CrossDeviceOps` of that name for these devices."""
    _one_of("all_reduce", all_reduce, ALL_REDUCES)
    if not isinstance(num_packs, int) or num_packs < 1:
        raise InputError(
            "num_packs must be an integer of at least 1. Received: "
            f"num_packs={num_packs!r}"
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


def _one_of(name, value, allowed):
    if value not in allowed:
        raise InputError(
            f"{name} must be one of {', '.join(allowed)}. Received: "
            f"{name}={value!r}"
        )
    return value


@contextlib.contextmanager
def _complete_elements(extended):
    """Tells TensorFlow that every step has an element for each replica.

    `split_dataset` yields as many shares as there are replicas, so the
    reduction that finds out whether any replica has data left is not needed.
    """
    name = "experimental_enable_get_next_as_optional"
    previous = getattr(extended, name)
    setattr(extended, name, False)
    try:
        yield
    finally:
        setattr(extended, name, previous)
