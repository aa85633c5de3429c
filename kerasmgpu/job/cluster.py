"""Who takes part in a job of several workers, and which of them this is.

Pure: environment variables and texts go in, addresses and numbers come out.
"""

import collections
import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Any

from kerasmgpu.errors import InputError
from kerasmgpu.job import slurm
from kerasmgpu.job.addresses import split_address

# What users find as `kerasmgpu.cluster`.
__all__ = ["Worker", "from_environment", "from_tf_config", "is_first_worker"]


@dataclasses.dataclass(frozen=True)
class Worker:
    """One worker of a job of several, as the worker itself sees it.

    Args:
        addresses: Tuple of strings `"host:port"`, one per worker, in the same
            order in every worker.
        index: Integer from 0, the place of this worker in `addresses`.

    Raises:
        InputError: For a malformed or doubled address, or an index past them.

    Example:

    ```python
    worker = Worker(("a:29500", "b:29500"), index=0)
    worker.num_workers  # 2
    worker.is_first  # True
    ```
    """

    addresses: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", tuple(self.addresses))
        _check(self.addresses)
        whole = isinstance(self.index, int) and not isinstance(self.index, bool)
        if not whole or not 0 <= self.index < len(self.addresses):
            raise InputError(
                f"This worker's index must be 0 to {len(self.addresses) - 1}, "
                f"one of {len(self.addresses)} addresses. "
                f"Received: {self.index!r}"
            )

    @property
    def num_workers(self) -> int:
        """Integer, how many workers the job has."""
        return len(self.addresses)

    @property
    def is_first(self) -> bool:
        """Boolean, whether this is the worker that writes files."""
        return self.index == 0

    def tf_config(self) -> str:
        """The text that TensorFlow expects in the variable `TF_CONFIG`."""
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


def from_environment(
    environ: Mapping[str, str] = os.environ,
) -> Worker | None:
    """Finds out of which job this process is a worker.

    `TF_CONFIG` counts first (our launcher and Kubernetes training operators
    set it), then Slurm's variables, those of a step that `srun` started: a
    batch script and an interactive shell are no workers.

    Args:
        environ: Mapping of environment variables. Defaults to `os.environ`.

    Returns:
        A `Worker`, or `None` where this process is alone. A `TF_CONFIG` or
        a step of a single worker is no cluster: `None`.

    Raises:
        InputError: If the variables are malformed or contradict each other.

    Example:

    ```python
    worker = from_environment()
    print("alone" if worker is None else f"worker {worker.index}")
    ```
    """
    if environ.get("TF_CONFIG", "").strip():
        worker = from_tf_config(environ["TF_CONFIG"])
    else:
        found = slurm.addresses_and_index(environ)
        worker = found and Worker(*found)
    if worker is None or worker.num_workers == 1:
        return None
    return worker


def is_first_worker() -> bool:
    """Whether this process is the one of its job that writes and prints.

    What our launcher, `TF_CONFIG` or Slurm says; true where nothing does.
    TensorFlow is not imported, and no worker waits for another.

    Raises:
        InputError: If what they say can't be understood.

    Example:

    ```python
    if kerasmgpu.is_first_worker():
        mlflow.start_run()
    ```
    """
    worker = from_environment()
    return worker is None or worker.is_first


def from_tf_config(text: str) -> Worker | None:
    """Reads a `TF_CONFIG`: who is in the cluster, and which of them we are.

    Args:
        text: String, JSON such as `{"cluster": {"worker": ["a:1", "b:1"]},
            "task": {"type": "worker", "index": 0}}`. A `"chief"` counts as
            the first worker.

    Returns:
        A `Worker`, or `None` where no cluster is described.

    Raises:
        InputError: If it is no such JSON, an address or index can't be
            right, or it asks for parameter servers or an evaluator.
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
    """This process's place among chief and workers together."""
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
    if type(index) is not int or not 0 <= index < count:
        raise _wrong_tf_config(
            f'"task" index 0 to {count - 1}, as many as "{task_type}" has '
            "addresses",
            text,
        )
    return index + (num_chiefs if task_type == "worker" else 0)


def _wrong_tf_config(expected: str, text: str) -> InputError:
    received = " ".join(text.split())
    if len(received) > 200:
        received = received[:200] + "…"
    return InputError(f"TF_CONFIG: expected {expected}. Received: {received}")
