"""Batch sizes, learning rates and efficiencies for several replicas.

Plain arithmetic on the standard library: invalid settings raise before any
device is initialised.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_choice,
    checked_integer,
    checked_number,
)

__all__ = [
    "efficiency",
    "global_batch_size",
    "last_batch_sizes",
    "per_replica_batch_sizes",
    "scale_learning_rate",
    "shard_axis",
    "speed_up",
]

_LEARNING_RATE_FACTORS: dict[str, Callable[[int], float]] = {
    "linear": lambda num_replicas: float(num_replicas),
    "sqrt": math.sqrt,
    "none": lambda num_replicas: 1.0,
}
LEARNING_RATE_RULES = tuple(_LEARNING_RATE_FACTORS)

MIN_SHARD_BYTES = 1 << 14
"""Bytes of the smallest variable that is sharded: a smaller one takes longer to
gather than it saves."""

ASSUMED_SIZE = 64
"""Size of an axis, or rounds of a loop, that are known when the step runs only,
and of which no batch has been seen."""


def checked_replicas_per_worker(number: int, counts: Sequence[int]) -> int:
    """Returns the replicas of each process of a job.

    Args:
        number: Integer.
        counts: Sequence of integers, numbers of replicas of whole jobs.

    Raises:
        InputError: If it is below 1, or doesn't divide each of `counts`.
    """
    number = checked_integer(number, "replicas_per_worker", 1)
    wrong = [count for count in counts if count % number]
    if wrong:
        raise InputError(
            "every number of replicas must be a multiple of "
            f"replicas_per_worker. Received: replicas_per_worker={number} and "
            f"replicas={','.join(map(str, wrong))}"
        )
    return number


def checked_mesh(mesh: Sequence[int]) -> tuple[int, ...]:
    """Returns the sizes of a mesh's axes.

    Args:
        mesh: Sequence of integers of at least 1, such as `(2, 4)`.

    Raises:
        InputError: If it is none.
    """
    if isinstance(mesh, str) or not isinstance(mesh, Sequence) or not mesh:
        raise InputError(
            "mesh is given by the sizes of its axes, such as (2, 4): rows by 2, "
            f"variables by 4. Received: mesh={mesh!r}"
        )
    return tuple(checked_integer(one, "each size of mesh", 1) for one in mesh)


def groups_of_mesh(
    mesh: Sequence[int], num_workers: int, others: Any = None
) -> tuple[int, int]:
    """Returns the replicas, and `shard_over`, of a mesh on which `shard` divides.

    Args:
        mesh: Sequence of two integers, groups and the replicas of each.
        others: Other arguments that say so, which there may not be.

    Raises:
        InputError: If it isn't such a mesh of that many workers.
    """
    sizes = checked_mesh(mesh)
    is_divided = len(sizes) == 2 and sizes[1] > 1
    if not is_divided or math.prod(sizes) % num_workers or others:
        raise InputError(
            "With shard, a mesh has two axes, groups and the replicas of each (at "
            "least 2), as many on each worker, and is given without "
            "num_replicas, devices and shard_over. Received: "
            f"mesh={mesh!r} for {num_workers} workers"
            + (f", and {others!r}." if others else ".")
        )
    return math.prod(sizes), sizes[1]


def block_of(axes: Sequence[int], num: int) -> tuple[int, ...]:
    """Returns how many of a worker's `num` devices lie along each mesh axis.

    As many as possible lie along the last axis, so that it is inside of a
    worker. Some block exists if workers have equal numbers of devices.

    >>> block_of((2, 4), 4), block_of((3, 2), 3)
    ((1, 4), (3, 1))
    """
    block: list[int] = []
    for size in reversed(axes):
        own = math.gcd(size, num)
        block.insert(0, own)
        num //= own
    return tuple(block)


def groups_of(num_replicas: int, shard_over: int | str | None) -> int:
    """Returns the number of groups of replicas that each have all variables.

    Args:
        num_replicas: Integer.
        shard_over: Integer, replicas over which a variable is divided; `None`
            for all. More than `num_replicas` are all, too.

    Raises:
        InputError: If they don't divide the number of replicas.
    """
    if shard_over is None:
        return 1
    number = checked_integer(shard_over, "shard_over", 2)
    if number >= num_replicas:
        return 1
    if num_replicas % number:
        raise InputError(
            "shard_over must divide the number of replicas. Received: "
            f"shard_over={shard_over} for {num_replicas} replicas"
        )
    return num_replicas // number


def require_rows(micro_batches: int, rows: int) -> None:
    """Raises if a batch has fewer rows than micro-batches.

    Args:
        micro_batches: Integer, see `MirroredStrategy`.
        rows: Integer, rows of the global batch.

    Raises:
        InputError: If it has.
    """
    if rows < micro_batches:
        raise InputError(
            "micro_batches are the parts in which each replica works through "
            "its rows of a batch: there can't be more of them than a batch has "
            f"rows. Received: micro_batches={micro_batches} for batches of "
            f"{rows} rows; use fewer micro_batches, or larger batches"
        )


@checked_arguments
def global_batch_size(batch_size_per_replica: int, num_replicas: int) -> int:
    """Returns the rows of one step, over all replicas.

    Args:
        batch_size_per_replica: Integer, rows of one replica per step; at
            least 1.
        num_replicas: Integer, copies of the model; at least 1.

    Raises:
        InputError: If either is not an integer of at least 1.

    Example:

    >>> global_batch_size(64, num_replicas=4)
    256
    """
    batch_size_per_replica = checked_integer(
        batch_size_per_replica, "batch_size_per_replica", minimum=1
    )
    num_replicas = checked_integer(num_replicas, "num_replicas", minimum=1)
    return batch_size_per_replica * num_replicas


@checked_arguments
def per_replica_batch_sizes(
    global_batch_size: int, num_replicas: int
) -> tuple[int, ...]:
    """Returns how many rows of a batch each replica gets.

    The counts differ by at most one, the first replicas get the extra rows,
    and the last replicas get none if there are fewer rows than replicas.
    kerasmgpu's strategies split every batch like this. (TensorFlow splits by
    `ceil(rows / replicas)`: 5 rows on 4 replicas become 2, 2, 1, 0.)

    Args:
        global_batch_size: Integer, rows of the whole batch; at least 1.
        num_replicas: Integer, copies of the model; at least 1.

    Returns:
        Tuple of `num_replicas` integers whose sum is `global_batch_size`.

    Raises:
        InputError: If either is not an integer of at least 1.

    Example:

    >>> per_replica_batch_sizes(10, num_replicas=4)
    (3, 3, 2, 2)
    >>> per_replica_batch_sizes(2, num_replicas=4)
    (1, 1, 0, 0)
    """
    global_batch_size = checked_integer(
        global_batch_size, "global_batch_size", minimum=1
    )
    num_replicas = checked_integer(num_replicas, "num_replicas", minimum=1)
    bounds = bounds_of(global_batch_size, num_replicas)
    return tuple(end - start for start, end in zip(bounds, bounds[1:]))


def bounds_of(rows: int, num_shares: int) -> list[int]:
    """Divides rows into consecutive shares that differ by at most one row.

    The first shares are the longer ones.

    Returns:
        The first row of each share, and the end of the last one.
    """
    return [first_row(n, rows, num_shares) for n in range(num_shares + 1)]


def first_row(
    share: Any, rows: Any, num_shares: int, minimum: Callable[..., Any] = min
) -> Any:
    """Returns the first row of a share; for `num_shares`, the end of the last.

    On integers, or with `minimum=tf.minimum` on tensors.
    """
    return share * (rows // num_shares) + minimum(share, rows % num_shares)


def last_batch_sizes(
    num_examples: int, global_batch_size: int, num_replicas: int
) -> tuple[int, ...]:
    """Returns how many rows of an epoch's last batch each replica gets.

    Args:
        num_examples: Integer, examples in the data set; at least 1.
        global_batch_size: Integer, rows of every batch but the last; at
            least 1.
        num_replicas: Integer, copies of the model; at least 1.

    Returns:
        Tuple of `num_replicas` integers; those of a full batch if the batch
        size divides `num_examples`.

    Raises:
        InputError: If any of them is not an integer of at least 1.

    Example:

    >>> last_batch_sizes(1003, global_batch_size=100, num_replicas=2)
    (2, 1)
    """
    num_examples = checked_integer(num_examples, "num_examples", minimum=1)
    global_batch_size = checked_integer(
        global_batch_size, "global_batch_size", minimum=1
    )
    rows = num_examples % global_batch_size or global_batch_size
    return per_replica_batch_sizes(rows, num_replicas)


@checked_arguments
def scale_learning_rate(
    learning_rate: float, num_replicas: int, rule: str = "linear"
) -> float:
    """Returns the learning rate for a batch `num_replicas` times as large.

    - `"linear"`, n times the rate: for SGD with or without momentum; one step
      replaces n small ones (Goyal et al., arXiv:1706.02677, section 2.1). Use
      it with warm-up, `kerasmgpu.schedules.WarmUp`.
    - `"sqrt"`, sqrt(n) times the rate: for Adam, RMSprop and other adaptive
      optimizers (Malladi et al., arXiv:2205.10287); for SGD, to keep the
      variance of the update (Krizhevsky, arXiv:1404.5997, section 5; Hoffer et
      al., arXiv:1705.08741).
    - `"none"`, the rate unchanged: if the global batch stays the same, or the
      rate is already tuned for it.

    A rule gives a starting point for tuning: each breaks down at some batch
    size, which depends on the model and the data.

    Args:
        learning_rate: Float, the rate tuned for one replica; positive.
        num_replicas: Integer, factor by which the batch grows; at least 1.
        rule: `"linear"`, `"sqrt"` or `"none"`. Defaults to `"linear"`.

    Returns:
        Float, the learning rate for the global batch.

    Raises:
        InputError: If the learning rate is not a finite number above 0, the
            rule is unknown, or `num_replicas` is not an integer of at
            least 1.

    Example:

    >>> scale_learning_rate(0.1, num_replicas=32)
    3.2
    >>> scale_learning_rate(0.001, num_replicas=4, rule="sqrt")
    0.002
    """
    learning_rate = checked_number(learning_rate, "learning_rate")
    num_replicas = checked_integer(num_replicas, "num_replicas", minimum=1)
    rule = checked_choice(rule, "rule", LEARNING_RATE_RULES)
    return learning_rate * _LEARNING_RATE_FACTORS[rule](num_replicas)


def speed_up(rate: float, reference_rate: float) -> float:
    """Returns how many times as fast `rate` is as `reference_rate`.

    Args:
        rate: Float, work per second, such as examples per second; positive.
            For durations of the same work, pass `1 / seconds`.
        reference_rate: Float, the rate to compare with, in the same unit.

    Raises:
        InputError: If either is not a finite number above 0.

    Example:

    >>> speed_up(3000.0, reference_rate=2000.0)
    1.5
    """
    rate = checked_number(rate, "rate")
    reference_rate = checked_number(reference_rate, "reference_rate")
    return rate / reference_rate


def efficiency(
    speed_up: float, num_replicas: int, reference_replicas: int = 1
) -> float:
    """Returns the share of the ideal speed-up that was reached.

    Args:
        speed_up: Float, as `kerasmgpu.replica_arithmetic.speed_up` returns it.
        num_replicas: Integer, replicas that reached `speed_up`.
        reference_replicas: Integer, replicas of the reference run. Defaults
            to 1.

    Returns:
        Float: 1.0 if n times the replicas do n times the work per second.

    Raises:
        InputError: If `speed_up` is not a finite number above 0, or a number
            of replicas is not an integer of at least 1.

    Example:

    >>> efficiency(1.5, num_replicas=2)
    0.75
    """
    speed_up = checked_number(speed_up, "speed_up")
    num_replicas = checked_integer(num_replicas, "num_replicas", minimum=1)
    reference_replicas = checked_integer(
        reference_replicas, "reference_replicas", minimum=1
    )
    return speed_up * reference_replicas / num_replicas


def shard_axis(
    shape: Sequence[int], num_replicas: int, is_table: bool = False
) -> int | None:
    """Returns the axis along which a variable is divided over the replicas.

    Args:
        shape: The variable's sizes.
        num_replicas: Integer of at least 1.
        is_table: Boolean, whether it is an embedding table, which is divided by
            rows where there are enough.

    Returns:
        The longest axis, of those that divide evenly if there are any; `None`
        if no axis has an element for each replica.

    Example:

    >>> shard_axis((3, 3, 64, 130), num_replicas=4)
    2
    """
    fitting = [n for n, size in enumerate(shape) if size >= num_replicas]
    if is_table and 0 in fitting:
        return 0
    return max(
        fitting,
        key=lambda axis: (shape[axis] % num_replicas == 0, shape[axis], -axis),
        default=None,
    )
