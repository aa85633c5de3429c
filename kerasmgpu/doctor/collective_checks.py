"""Times collectives over all devices, and compares with the rates of the links.

As the process `python -m … FOLDER` it times them. They are the collectives of a
training step: a program of three assignments is partitioned as a step is, and
its all-reduce, all-gather and reduce-scatter are what the partitioner writes
for these devices. In a job, all workers take part.
"""

import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kerasmgpu.commands import child_processes
from kerasmgpu.doctor.findings import Finding, fine, found
from kerasmgpu.hardware import gpu_links

_SLOW = 0.4
"""Share of the links' rate below which an all-reduce is called slow; nccl-tests
reaches 0.7 to 0.9 on large values."""


def bandwidths(
    collective: str, size: int, seconds: float, replicas: int
) -> tuple[float, float]:
    """Returns algorithm and bus bandwidth in bytes per second.

    They are those of nccl-tests (doc/PERFORMANCE.md): the size by the time, and
    that times the share of the size that each link has to carry, which is
    comparable with the rate of the links.

    Args:
        collective: `"all_reduce"`, `"all_gather"` or `"reduce_scatter"`.
        size: Integer, bytes of the whole value.

    Example:

    >>> bandwidths("all_reduce", 1_000_000, 0.001, 4)
    (1000000000.0, 1500000000.0)
    """
    algorithm = size / seconds
    rounds = 2 if collective == "all_reduce" else 1
    return algorithm, algorithm * rounds * (replicas - 1) / replicas


def judge_collectives(
    measured: dict[str, Any], driver: dict[str, Any], is_job: bool
) -> Iterator[Finding]:
    """Judges what the process of this module returned.

    Args:
        measured: Its dictionary, or `{"error": why it failed}`.
        driver: This machine's GPUs, as of `gpu_checks.gpu_facts`.
        is_job: Boolean, whether there are several workers.
    """
    if "error" in measured:
        yield found("collectives_failed", "collectives", measured["error"])
        return
    if not measured["times"]:
        text = "one device: no collectives"
        yield fine("collectives", "collectives", text)
        return
    wrong = {
        one["collective"] for one in measured["times"] if not one["is_right"]
    }
    if wrong:
        text = f"wrong values: {', '.join(sorted(wrong))}"
        yield found("collective_wrong", "collectives", text)
    (*_, last) = (
        one for one in measured["times"] if one["collective"] == "all_reduce"
    )
    _, bus = bandwidths(
        "all_reduce", last["bytes"], last["seconds"], measured["replicas"]
    )
    text = f"all-reduce of {last['bytes'] >> 20} MiB: {bus / 1e9:.3g} GB/s"
    cards, topology = driver.get("gpus", []), driver.get("topology", [])
    rate = None if is_job else gpu_links.ring_rate(cards, topology)
    if rate is None or "GPU" not in measured["devices"][0]:
        yield fine("collectives", "collectives", text)
        return
    text += f" of {rate / 1e9:.3g} GB/s that its slowest link carries"
    is_slow = bus < _SLOW * rate
    yield (
        found("collective_slow", "collectives", text)
        if is_slow
        else fine("collectives", "collectives", text)
    )


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
