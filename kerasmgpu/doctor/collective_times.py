"""Times collectives over all devices, as the process `python -m … FOLDER`.

They are the collectives of a training step: a program of three assignments is
partitioned as a step is, and its all-reduce, all-gather and reduce-scatter are
what the partitioner writes for these devices. In a job, all workers take part.
"""

import functools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.commands import child_processes

_ROUNDS = 5
_ELEMENTS_PER_ROUND = 1 << 24
_MOST_CALLS = 20


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Gathers the workers' facts and times collectives.

    Args:
        job: Dictionary of `"virtual_devices"` (or `None`), `"sizes"`, a list of
            bytes, and `"facts"`, this worker's.

    Returns:
        Dictionary of `"devices"`, `"replicas"`, `"engine"`, `"facts"` and
        `"clocks"` of all workers, and `"times"`, a list of dictionaries.
    """
    import kerasmgpu

    strategy = kerasmgpu.strategy(
        virtual_devices=job["virtual_devices"],
        shard=lambda variable: 0 if variable.path.startswith("part") else None,
        min_shard_bytes=0,
    )
    num = strategy.num_replicas_in_sync
    facts = _from_all(strategy, job["facts"])
    return {
        "devices": list(strategy.extended.worker_devices),
        "replicas": num,
        "engine": _engine(strategy.replicas),
        "facts": facts,
        "clocks": _from_all(strategy, time.time()),
        "times": [
            one
            for size in job["sizes"]
            if num > 1
            for one in collectives(strategy, num, size)
        ],
    }


def _engine(replicas: Any) -> str:
    """What the partitioner's collectives are written with."""
    return {
        "Replicas": "additions and copies in one process",
        "CollectiveReplicas": "TensorFlow's collectives (NCCL between GPUs)",
        "CrossDeviceReplicas": "tf.distribute's CrossDeviceOps, and copies",
    }[type(replicas).__name__]


def _from_all(strategy: Any, data: Any) -> list[Any]:
    """All-gathers JSON data of the workers."""
    from kerasmgpu.job import workers

    octets = json.dumps(data).encode()
    sizes = workers.gather(strategy, [len(octets)])[:, 0].astype(int)
    padding = bytes(sizes.max() - len(octets))
    table = workers.gather(strategy, [*octets, *padding]).astype("uint8")
    return [json.loads(row[:size].tobytes()) for row, size in zip(table, sizes)]


def collectives(strategy: Any, num: int, size: int) -> list[dict[str, Any]]:
    """Times each collective of `size` bytes of float32, on all replicas."""
    import tensorflow as tf

    elements = size // 4
    with strategy.scope():
        values = tf.range(1.0, num + 1)[:, tf.newaxis]
        # Each replica has a row: a sum over rows is partial on each.
        rows = tf.Variable(tf.tile(values, [1, elements]), name="part_rows")
        part = tf.Variable(tf.fill([elements], 3.0), name="part_of_whole")
        whole = tf.Variable(tf.zeros([elements]), name="whole")
    total = num * (num + 1) / 2

    def all_reduce() -> None:
        whole.assign(tf.reduce_sum(rows, 0))

    def all_gather() -> None:
        whole.assign(part)

    def reduce_scatter() -> None:
        part.assign(tf.reduce_sum(rows, 0))

    times = []
    for function, expected, result in (
        (all_reduce, total, whole),
        (all_gather, 3.0, whole),
        (reduce_scatter, total, part),
    ):
        program, _ = strategy.partitioned(function).prepared()
        written = program.written()
        copies = getattr(result, "parts", None)
        copies = copies or strategy.experimental_local_results(result)
        seconds = _seconds(functools.partial(written, []), copies)
        times.append(
            {
                "collective": function.__name__,
                "written_as": [
                    one.name for one in written.lowered.communication()
                ],
                "bytes": size,
                "seconds": seconds,
                "is_right": all(
                    bool(tf.reduce_all(copy == expected)) for copy in copies
                ),
            }
        )
    return times


def _seconds(call: Callable[[], Any], copies: Sequence[Any]) -> float:
    """Median seconds of a call that assigns variables, this worker's `copies`.

    All workers make the same number of calls.
    """
    (elements,) = copies[0].shape
    calls = max(1, min(_MOST_CALLS, _ELEMENTS_PER_ROUND // elements))

    def finish() -> None:
        for copy in copies:
            copy[:1].numpy()  # Waits for the device.

    call()  # Starts what is started at first use, such as NCCL's rings.
    means = []
    for _ in range(_ROUNDS):
        finish()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        means.append((time.perf_counter() - begin) / calls)
    return statistics.median(means)


if __name__ == "__main__":
    child_processes.do_job(main)
