"""What our strategies add to TensorFlow's: exact steps of Keras models."""

import contextlib

import tensorflow as tf
from absl import logging

from kerasmgpu import _keras, file_sharding
from kerasmgpu.errors import InputError
from kerasmgpu.step import collectives, metrics, split, state
from kerasmgpu.step.replica import Replica, running


class ExactSteps:
    """Mixed into a `tf.distribute.Strategy` in front of TensorFlow's class.

    Every worker of a job reads the same global batches and every replica takes
    its own share of them, in the order of the rows. The class that this is
    mixed into sets `_random_mode` and `_batch_norm`, and `own_time` where
    there are other workers to compare with.
    """

    own_time = None

    reduced_bytes_per_step = None
    """Bytes that each replica's last traced training step has to sum with the
    others': gradients, losses, moments and metrics that are looked at, as far
    as their shapes are known beforehand (rows of a sparse gradient and
    gathered rows are not)."""

    @property
    def num_workers(self):
        """Processes of the job."""
        return self.num_replicas_in_sync // len(self.extended.worker_devices)

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
        distributed = self._distribute_shares(dataset, options)
        distributed.batch_specification = dataset.element_spec
        distributed.for_steps = lambda: self.dataset_for_steps(dataset)
        return distributed

    def distribute_datasets_from_function(self, dataset_fn, options=None):
        """As TensorFlow's: each worker's own data set of its shares.

        Args:
            dataset_fn: Function of a `tf.distribute.InputContext` that returns
                a `tf.data.Dataset` with one element per replica and step.
            options: `tf.distribute.InputOptions`.

        Returns:
            A `tf.distribute.DistributedDataset`.
        """
        distribute = super().distribute_datasets_from_function
        distributed = distribute(dataset_fn, options)
        distributed.for_steps = lambda: distribute(
            lambda context: split.mark(dataset_fn(context)), options
        )
        return distributed

    def dataset_for_steps(self, dataset, in_order=False):
        """What feeds a Keras model's steps from a data set of global batches.

        On GPUs, shares are copied to each replica's device ahead of the step.
        CPU devices share their memory with the data set: batches stay whole
        and the step cuts them, without a thread per replica that waits. With
        one replica that saves a fifth of a compiled step.

        Workers all read the whole data set and take their rows of each batch,
        unless it reads at least as many files as there are workers: then each
        reads its own files, as `tf.data` shards them.

        Args:
            dataset: `tf.data.Dataset` of global batches.
            in_order: Whether outputs must come in the order of the rows, as
                those of `predict`: files are not divided then.
        """
        if self.num_replicas_in_sync == 1 and not self._is_on_cpu:
            distributed = super().experimental_distribute_dataset(dataset)
            distributed.batch_specification = dataset.element_spec
            return distributed
        if not in_order and file_sharding.by_files(dataset, self.num_workers):
            distributed = super().experimental_distribute_dataset(
                split.mark(dataset)
            )
            # The worker whose files have most rows decides.
            distributed.has_own_length = True
            return distributed
        if self._is_on_cpu:
            return dataset
        distributed = self._distribute_shares(dataset, None, split.mark)
        distributed.batch_specification = dataset.element_spec
        return distributed

    @property
    def _is_on_cpu(self):
        return all("CPU" in device for device in self.extended.worker_devices)

    def _distribute_shares(
        self, dataset, options, prepare=lambda shares: shares
    ):
        """A distributed data set of this worker's shares of every batch."""
        num_local = len(self.extended.worker_devices)

        def shares(context):
            first = context.input_pipeline_id * num_local
            return prepare(
                split.split_dataset(
                    dataset, self.num_replicas_in_sync, first, num_local
                )
            )

        with _complete_elements(self.extended):
            return super().distribute_datasets_from_function(shares, options)

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
            split.unmarked(distributed_dataset.element_spec)[0],
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
        batch, is_split = split.unmarked(args[0])
        local_rows = None
        if is_split:
            local_rows = self._local_rows(batch)
        else:
            batch = split.whole_batch(batch)
            _require_rows(batch)
        states = [
            (layer, variables)
            for layer, variables in _keras.layer_states(model)
            if not _keras.is_alike(layer, self._batch_norm)
        ]
        assigned = set()
        logs = metrics.StepLogs(model, assigned, _keras.leaves_out_results())
        step = self._exact_step(model, fn, local_rows, states, assigned, logs)
        outputs, sums, averages = super().run(step, (batch,), kwargs, options)
        with self.scope():
            state.assign(self, states, assigned, averages)
            if not _returns_logs(fn):
                return self._in_order(outputs)
            return logs.of_global_batch(self, outputs, sums)

    def _exact_step(self, model, fn, local_rows, states, assigned, logs):
        """A function of a replica's share that runs `fn` exactly on it."""
        settings = _keras.thread_state()
        num_local = len(self.extended.worker_devices)

        def step(share):
            replica = self._replica(share, local_rows, model, assigned)
            if local_rows is None:
                share = split.share(share, replica.index, replica.num_replicas)
                replica.static_rows = split.static_rows(share)
            if self.own_time is not None and replica.index % num_local == 0:
                replica.own_time = self.own_time
                replica.started = self.own_time.start(replica.rows)
            _keras.set_thread_state(settings)
            with running(replica):
                outputs = fn(share)
            if replica.index % num_local == 0 and _trains(fn):
                self._note_bytes(replica.reduced_bytes)
            sums = []
            if _returns_logs(fn):
                outputs, sums = logs.of_replica(outputs, replica)
            else:
                outputs = metrics.join(outputs, replica)
            return outputs, sums, state.averages(states, replica)

        return tf.autograph.experimental.do_not_convert(step)

    def _note_bytes(self, num_bytes):
        """Keeps and says how many bytes a step has to sum, if it does."""
        if num_bytes and num_bytes != self.reduced_bytes_per_step:
            self.reduced_bytes_per_step = num_bytes
            logging.info(
                "kerasmgpu: every step sums %s MB over %d replicas.",
                f"{num_bytes / 1e6:,.3g}",
                self.num_replicas_in_sync,
            )

    def _local_rows(self, batch):
        """Rows of each of this worker's shares of a batch that is split."""
        for leaf in tf.nest.flatten(batch):
            shares = self.experimental_local_results(leaf)
            if split.has_rows(shares[0]):
                return tf.stack([split.num_rows(share) for share in shares])
        _require_rows(())

    def _replica(self, batch, local_rows, model, assigned):
        """The replica in whose thread this is called."""
        context = tf.distribute.get_replica_context()
        index = int(tf.get_static_value(context.replica_id_in_sync_group))
        num_replicas = self.num_replicas_in_sync
        num_local = len(self.extended.worker_devices)
        if local_rows is None:
            global_rows = split.batch_rows(batch)
            start, end = split.share_bounds(global_rows, index, num_replicas)
            rows = end - start
        else:
            rows = local_rows[index % num_local]
            counts = local_rows
            if num_replicas > num_local:
                counts = collectives.counts(rows, index, num_replicas)
            start = tf.reduce_sum(counts[:index])
            global_rows = tf.reduce_sum(counts)
        return Replica(
            index,
            num_replicas,
            rows=rows,
            first_row=start,
            global_rows=global_rows,
            static_rows=split.static_rows(batch),
            on_cpu="CPU" in self.extended.worker_devices[index % num_local],
            has_other_workers=num_replicas > num_local,
            random_mode=self._random_mode,
            batch_norm=self._batch_norm,
            compiled_model=model if model.jit_compile else None,
            assigned=assigned,
        )

    def _in_order(self, outputs):
        """Outputs of all replicas, concatenated in the order of the rows."""

        def join(value):
            shares = self.experimental_local_results(value)
            if self.num_workers > 1 or shares[0].shape.rank == 0:
                return shares[0]  # The step has joined them already.
            return collectives.concatenate_local(shares)

        return tf.nest.map_structure(join, outputs)


def _returns_logs(fn):
    """Whether a step's outputs are logs rather than predictions."""
    return getattr(fn, "__name__", "") in ("train_step", "test_step")


def _trains(fn):
    return getattr(fn, "__name__", "") == "train_step"


def _require_rows(batch):
    if split.batch_rows(batch) is None:
        raise InputError(
            "A step needs a batch with at least one array of rows to split "
            "over the replicas. Received: scalars only"
        )


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
