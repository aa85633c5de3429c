"""Collectives between the workers of a job, apart from gradients.

A worker is an operating-system process of a job; a strategy of one process is
a job of one worker. Every function but `is_first`, `index` and `count` is a
collective: all workers must call it, in the same order, outside of steps.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from kerasmgpu.engine import fit_clock

_PIECE = 8 << 20
"""Bytes of a broadcast's message, of which a worker holds some copies."""


def is_first(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the job's first worker, which writes files."""
    return _place(strategy)[0] == 0


def index(strategy: tf.distribute.Strategy) -> int:
    """Returns this worker's index in the job."""
    return _place(strategy)[0]


def count(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of workers of the job."""
    return _place(strategy)[1]


def broadcast(strategy: tf.distribute.Strategy, data: bytes) -> bytes:
    """Broadcasts bytes from the first worker.

    Args:
        strategy: The `tf.distribute.Strategy` of the job.
        data: Bytes; ignored on workers other than the first.

    Returns:
        The first worker's bytes.

    Example:

    ```python
    text = workers.broadcast(strategy, path.read_bytes() if first else b"")
    ```
    """
    if count(strategy) == 1:
        return bytes(data)
    own = np.frombuffer(data, np.uint8) if is_first(strategy) else None
    return broadcast_array(strategy, own, np.dtype(np.uint8), [-1]).tobytes()


def broadcast_array(
    strategy: tf.distribute.Strategy,
    array: np.ndarray | None,
    dtype: np.dtype,
    shape: Sequence[int],
) -> np.ndarray:
    """Broadcasts an array from the first worker, in pieces of 8 MiB.

    Args:
        array: NumPy array; `None` on workers other than the first.
        shape: Its shape; one size may be -1, unknown.
    """
    if array is not None and count(strategy) == 1:
        return array
    size = 0 if array is None else array.nbytes
    size = int(_sum(strategy, np.asarray(size, np.int64)))
    whole = np.empty(size, np.uint8)
    if array is not None:
        whole = array.reshape(-1).view(np.uint8)
    for start in range(0, size, _PIECE):
        piece = whole[start : start + _PIECE]
        padded = np.zeros(-(-piece.size // 4) * 4, np.uint8)
        if array is not None:
            padded[: piece.size] = piece
        # A broadcast as an all-reduce: the other workers contribute zeros.
        words = _sum(strategy, padded.view(np.int32))
        if array is None:
            piece[:] = words.view(np.uint8)[: piece.size]
    return whole.view(dtype).reshape(shape)


def any_of(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Whether `flag` is true on any worker; the same result on all."""
    if count(strategy) == 1:
        return bool(flag)
    return bool(_sum(strategy, np.asarray(int(flag), np.int32)) > 0)


def gather(
    strategy: tf.distribute.Strategy, numbers: Sequence[float]
) -> np.ndarray:
    """All-gathers floats of every worker.

    Args:
        numbers: Sequence of floats, of the same length on all workers.

    Returns:
        NumPy array `[workers, len(numbers)]`, in the order of the workers.
    """
    number, num_workers = _place(strategy)
    own = np.zeros([num_workers, len(numbers)])
    own[number] = numbers
    return own if num_workers == 1 else _sum(strategy, own)


def _place(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns this worker's index and the number of workers."""
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec().as_dict():
        return 0, 1
    spec = resolver.cluster_spec().as_dict()
    chiefs = len(spec.get("chief", ()))
    number = resolver.task_id + (0 if resolver.task_type == "chief" else chiefs)
    return number, chiefs + len(spec.get("worker", ()))


def _sum(strategy: tf.distribute.Strategy, array: np.ndarray) -> np.ndarray:
    """Returns the sum of the workers' arrays, each counted once; collective."""
    local_replicas = strategy.num_replicas_in_sync // count(strategy)

    def own(context: tf.distribute.ReplicaContext) -> tf.Tensor:
        # Only each worker's first replica contributes the worker's array.
        first = context.replica_id_in_sync_group % local_replicas == 0
        return tf.constant(array if first else np.zeros_like(array))

    with fit_clock.within(fit_clock.COMMUNICATION):
        values = strategy.experimental_distribute_values_from_function(own)
        return strategy.reduce(
            tf.distribute.ReduceOp.SUM, values, axis=None
        ).numpy()
