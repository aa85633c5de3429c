"""Resolves a job's workers and this worker's index from the environment.

Pure functions of environment variables and strings.
"""

import collections
import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

from kerasmgpu.errors import InputError, checked_arguments, one_line
from kerasmgpu.job import launchers, slurm
from kerasmgpu.job.addresses import split_address

SEPARATE_VARIABLE = "KERASMGPU_SEPARATE"
"""Environment variable: 1 lets this process train a model of its own."""

# Public as `kerasmgpu.cluster`.
__all__ = ["Worker", "from_environment", "from_tf_config", "is_first_worker"]


@dataclasses.dataclass(frozen=True)
class Worker:
    """This worker's place in a job of several workers.

    Args:
        addresses: Tuple of strings `"host:port"`, one per worker, in the same
            order on every worker. Empty if the workers have yet to exchange
            them (see `meeting`).
        index: Integer, 0-based index of this worker in `addresses`.
        meeting: `launchers.Meeting`: where workers that `mpirun` or another
            launcher has started exchange their addresses, which the strategy
            does. Defaults to `None`: the addresses are known.
        run: String, what the launcher calls the job, for jobs with the same
            addresses. Defaults to none.

    Raises:
        InputError: For a malformed or duplicate address, or an index out of
            range.

    Example:

    ```python
    worker = Worker(("a:29500", "b:29500"), index=0)
    worker.num_workers  # 2
    worker.is_first  # True
    ```
    """

    addresses: tuple[str, ...]
    index: int
    meeting: launchers.Meeting | None = None
    run: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", tuple(self.addresses))
        _check(self.addresses)
        whole = isinstance(self.index, int) and not isinstance(self.index, bool)
        if not whole or not 0 <= self.index < self.num_workers:
            raise InputError(
                f"This worker's index must be 0 to {self.num_workers - 1}, "
                f"one of {self.num_workers} addresses. "
                f"Received: {self.index!r}"
            )

    @property
    def num_workers(self) -> int:
        """Integer, number of workers of the job."""
        if self.meeting is not None:
            return self.meeting.num_workers
        return len(self.addresses)

    @property
    def is_first(self) -> bool:
        """Boolean, whether this is the worker that writes files."""
        return self.index == 0

    def tf_config(self) -> str:
        """Returns the value of `TF_CONFIG` for TensorFlow."""
        return json.dumps(
            {
                "cluster": {"worker": list(self.addresses)},
                "task": {"type": "worker", "index": self.index},
            }
        )


@functools.lru_cache(maxsize=1)  # A launcher has one list for many workers.
def _check(addresses: tuple[str, ...]) -> None:
    for address in addresses:
        split_address(address)
    counts = collections.Counter(addresses)
    doubled = sorted(a for a, count in counts.items() if count > 1)
    if doubled:
        raise InputError(
            "Every worker needs an address of its own. Received twice: "
            + ", ".join(doubled)
        )


def from_environment(environ: Mapping[str, str] = os.environ) -> Worker | None:
    """Returns the job's workers and this worker's index, by the environment.

    Reads `TF_CONFIG` first (our launcher and Kubernetes training operators
    set it), then the variables of `torchrun`, `horovodrun` and `mpirun`, then
    Slurm's of a step that `srun` started. Batch scripts and interactive shells
    are not workers. With `KERASMGPU_SEPARATE=1` no process is: each trains a
    model of its own.

    Args:
        environ: Mapping of environment variables. Defaults to `os.environ`.

    Returns:
        A `Worker`, or `None` if this process is not one of several workers
        (also for a `TF_CONFIG` or a step with a single worker).

    Raises:
        InputError: If the variables are malformed, contradict each other, or
            don't say where the other workers are.

    Example:

    ```python
    worker = from_environment()
    print("alone" if worker is None else f"worker {worker.index}")
    ```
    """
    if _is_separate(environ):
        return None
    if environ.get("TF_CONFIG", "").strip():
        worker = from_tf_config(environ["TF_CONFIG"])
    else:
        worker = _from_launcher(environ)
    if worker is None or worker.num_workers == 1:
        return None
    return worker


def _is_separate(environ: Mapping[str, str]) -> bool:
    text = environ.get(SEPARATE_VARIABLE, "")
    if text not in ("", "0", "1"):
        raise InputError(
            f"{SEPARATE_VARIABLE} must be 1 (each process trains a model of "
            f"its own) or 0. Received: {text!r}"
        )
    return text == "1"


def _from_launcher(environ: Mapping[str, str]) -> Worker | None:
    """Returns this process's place by the variables of its launcher.

    `None` if there are none, or if they tell of a single process.
    """
    found = launchers.place(environ, complete=True)
    if found is None:
        step = slurm.addresses_and_index(environ)
        if step is not None:
            return Worker(*step, run=slurm.run(environ))
        found = launchers.place(environ, complete=False)
    if found is None or found[1] is None:
        return None
    rank, meeting = found
    return Worker((), rank, meeting)


@checked_arguments
def is_first_worker() -> bool:
    """Whether this is the worker of its job that writes files and prints.

    By the environment of a launcher, `TF_CONFIG` or Slurm; true without one.
    Does not import TensorFlow or wait for other workers.

    Raises:
        InputError: If the variables are malformed or contradict each other.

    Example:

    ```python
    if kerasmgpu.is_first_worker():
        mlflow.start_run()
    ```
    """
    worker = from_environment()
    return worker is None or worker.is_first


def from_tf_config(text: str) -> Worker | None:
    """Parses a `TF_CONFIG` into the workers' addresses and this one's index.

    Args:
        text: String, JSON such as `{"cluster": {"worker": ["a:1", "b:1"]},
            "task": {"type": "worker", "index": 0}}`. A `"chief"` counts as
            the first worker. The index may be a string, as for TensorFlow.

    Returns:
        A `Worker`, or `None` without a cluster.

    Raises:
        InputError: If the JSON, an address or the index is invalid, or if the
            cluster has parameter servers or an evaluator.

    Example:

    ```python
    cluster = {"worker": ["a:29500", "b:29500"]}
    config = {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    from_tf_config(json.dumps(config)).index  # 1
    ```
    """
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _wrong_tf_config(f"valid JSON ({error})", text) from None
    if not isinstance(config, dict):
        raise _wrong_tf_config("a JSON object", text)
    cluster = config.get("cluster")
    if not cluster:
        return None
    if not isinstance(cluster, dict):
        raise _wrong_tf_config('"cluster" as an object', text)
    others = sorted(set(cluster) - {"chief", "worker"})
    if others:
        raise InputError(
            'TF_CONFIG may name "worker" and "chief" only: there are no '
            "parameter servers or evaluators in synchronous training. "
            f"Received: {', '.join(others)}"
        )
    chiefs = _addresses(cluster, "chief", text)
    if len(chiefs) > 1:
        raise _wrong_tf_config('one "chief" at most', text)
    workers = _addresses(cluster, "worker", text)
    index = _task_index(config, cluster, len(chiefs), text)
    return Worker(chiefs + workers, index)


def _addresses(
    cluster: dict[str, Any], task_type: str, text: str
) -> tuple[str, ...]:
    addresses = cluster.get(task_type, [])
    if not isinstance(addresses, list):
        raise _wrong_tf_config(f'"{task_type}" as a list of host:port', text)
    return tuple(addresses)


def _task_index(
    config: dict[str, Any], cluster: dict[str, Any], num_chiefs: int, text: str
) -> int:
    """Returns this process's index among chief and workers together."""
    task = config.get("task")
    if not isinstance(task, dict) or not {"type", "index"} <= set(task):
        raise _wrong_tf_config('"task" with "type" and "index"', text)
    task_type, index = task["type"], task["index"]
    if task_type not in list(cluster):  # Also if it is no string.
        raise _wrong_tf_config(
            f'"task" type to be one of the cluster\'s: {", ".join(cluster)}',
            text,
        )
    count = len(cluster[task_type])
    if isinstance(index, str) and index.isascii() and index.isdigit():
        index = int(index)
    if type(index) is not int or not 0 <= index < count:
        raise _wrong_tf_config(
            f'"task" index 0 to {count - 1}, as many as "{task_type}" has '
            "addresses",
            text,
        )
    return index + (num_chiefs if task_type == "worker" else 0)


def _wrong_tf_config(expected: str, text: str) -> InputError:
    received = one_line(text)
    if len(received) > 200:
        received = received[:200] + "…"
    return InputError(f"TF_CONFIG: expected {expected}. Received: {received}")
