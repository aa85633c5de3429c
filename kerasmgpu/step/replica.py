"""What a replica knows of itself and of the global batch while its step runs."""

import contextlib
import threading

import tensorflow as tf

_thread = threading.local()


class Replica:
    """One replica's place in the step that is being traced or run.

    `tf.distribute.MirroredStrategy` runs each replica's step in a thread of
    its own, so the current replica is thread-local state; the main thread,
    where cross-replica code runs, has none.

    Args:
        index: Number of this replica among all replicas, from 0.
        num_replicas: Number of replicas in sync, at least 2.
        rows: Scalar int32 tensor, rows of this replica's share (may be 0).
        first_row: Scalar int32 tensor, rows of the shares before this one.
        global_rows: Scalar int32 tensor, rows of the global batch.
        static_rows: `rows` as an integer where it is known beforehand.
        on_cpu: Whether its device is a CPU.
        has_other_workers: Whether there are replicas in other processes.
        random_mode: `"global"` or `"per_replica"`, see `step/randomness.py`.
        batch_norm: `"global"` or `"per_replica"`, see
            `step/normalization.py`.
        compiled_model: The model whose call XLA compiles, or `None`.
        assigned: Set that collects the `id`s of assigned Keras variables.
    """

    def __init__(
        self,
        index,
        num_replicas,
        rows,
        first_row,
        global_rows,
        static_rows=None,
        on_cpu=False,
        has_other_workers=False,
        random_mode="global",
        batch_norm="global",
        compiled_model=None,
        assigned=(),
    ):
        self.index = index
        self.num_replicas = num_replicas
        self.rows = rows
        self.first_row = first_row
        self.global_rows = global_rows
        self.static_rows = static_rows
        self.on_cpu = on_cpu
        self.has_other_workers = has_other_workers
        self.random_mode = random_mode
        self.batch_norm = batch_norm
        self.compiled_model = compiled_model
        self.assigned = assigned
        # Set while XLA compiles what runs: it handles shares without rows.
        self.is_compiling = False
        # Set while code runs on the gathered global batch, where values need
        # no further reduction.
        self.sees_global_batch = False
        # `id`s of the optimizers whose loss is weighted by rows already.
        self.weighted_optimizers = set()
        # Set once a loss was computed by Keras, not by hand.
        self.has_keras_loss = False
        # Where to note when the gradients are there, and since when; see
        # `step/own_time.py`.
        self.own_time = self.started = None
        # Bytes that this step sums over the replicas, as far as shapes tell.
        self.reduced_bytes = 0
        # Attributes of layers that must not be shared between the replicas'
        # threads: {(id of layer, attribute): value}.
        self.layer_attributes = {}

    def rows_ratio(self, dtype):
        """Rows of the global batch over this replica's; 0 for an empty share."""
        return tf.math.divide_no_nan(
            tf.cast(self.global_rows, dtype), tf.cast(self.rows, dtype)
        )

    @contextlib.contextmanager
    def compiling(self):
        """Marks code that XLA compiles."""
        self.is_compiling = True
        try:
            yield
        finally:
            self.is_compiling = False

    @contextlib.contextmanager
    def global_batch(self):
        """Marks code that works on the gathered global batch."""
        previous = self.sees_global_batch
        self.sees_global_batch = True
        try:
            yield
        finally:
            self.sees_global_batch = previous


def current():
    """The replica whose step this thread is running, or `None`."""
    return getattr(_thread, "replica", None)


@contextlib.contextmanager
def running(replica):
    """Makes `replica` the current one of this thread."""
    previous = current()
    _thread.replica = replica
    try:
        yield
    finally:
        _thread.replica = previous


def is_updating():
    """Whether this thread applies an optimizer to one replica's copies."""
    return getattr(_thread, "updating", False)


@contextlib.contextmanager
def updating(squares):
    """Marks the code that updates one replica's copies of the variables.

    Args:
        squares: Function that returns pairs of a gradient and its square, or
            `None` where that is not at hand.
    """
    _thread.updating, _thread.kept, _thread.squares = True, {}, squares
    try:
        yield
    finally:
        _thread.updating, _thread.kept, _thread.squares = False, {}, None


def kept_for_update(key, make):
    """What `make()` returned for `key` earlier in the running update."""
    if key not in _thread.kept:
        _thread.kept[key] = make()
    return _thread.kept[key]


def square_of(gradient):
    """The square of a gradient in the running update.

    Squares of what was summed as one pack are computed as one.
    """
    squares = kept_for_update(
        "squares", lambda: {id(one): two for one, two in _thread.squares()}
    )
    square = squares.get(id(gradient))
    return tf.square(gradient) if square is None else square
