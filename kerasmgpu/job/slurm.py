"""Resolves a job's workers from Slurm's environment variables.

Documented at https://slurm.schedmd.com/srun.html (output environment
variables). Pure functions.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

from kerasmgpu.errors import InputError
from kerasmgpu.job.addresses import Host

_FIRST_PORT = 15000  # To 29975: below Linux's ephemeral ports.
_PORTS_PER_STEP = 64
_BLOCKS = 234
# Slurm's special steps (batch script, interactive shell) start at this id.
_SPECIAL_STEPS = 0xFFFFFFF0


def addresses_and_index(
    environ: Mapping[str, str],
) -> tuple[tuple[str, ...], int] | None:
    """Returns the addresses of a step's tasks and this task's index.

    Ports are computed from the ids of job and step and the task's index on its
    node, so that all tasks agree and jobs that share a node rarely collide.

    Returns:
        Tuple `(addresses, index)`, a tuple of strings `"host:port"` and an
        integer; `None` for a step of one task, and outside of a step that
        `srun` started: in a batch script or an interactive shell.

    Raises:
        InputError: If the variables are malformed or contradict each other.
    """
    if "SLURM_STEP_ID" not in environ or "SLURM_PROCID" not in environ:
        return None
    step = _integer(environ, "SLURM_STEP_ID")
    if step >= _SPECIAL_STEPS:
        return None
    tasks_key = (
        "SLURM_STEP_NUM_TASKS"
        if "SLURM_STEP_NUM_TASKS" in environ
        else "SLURM_NTASKS"
    )
    num_tasks = _integer(environ, tasks_key)
    if num_tasks == 1:
        return None
    hosts = _hosts(environ, num_tasks, tasks_key)
    # The ids of jobs on one node are mostly close together.
    block = (_integer(environ, "SLURM_JOB_ID") + 31 * step) % _BLOCKS
    first_port = _FIRST_PORT + block * _PORTS_PER_STEP
    places = [
        (node, local)
        for node, host in enumerate(hosts)
        for local in range(host.num_workers)
    ]
    index = _integer(environ, "SLURM_PROCID")
    _require_place(environ, places, index)
    addresses = tuple(
        hosts[node].address(first_port + local) for node, local in places
    )
    return addresses, index


def run(environ: Mapping[str, str]) -> str:
    """Returns the name of a step, by which its tasks know one another.

    Its ports may be those of another job.
    """
    return f"slurm {environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"


def _require_place(
    environ: Mapping[str, str], places: Sequence[tuple[int, int]], index: int
) -> None:
    """Raises unless tasks are numbered node by node."""
    received = tuple(
        _integer(environ, key) for key in ("SLURM_NODEID", "SLURM_LOCALID")
    )
    expected = places[index] if index < len(places) else None
    if received != expected:
        raise InputError(
            "Slurm: tasks must be numbered node by node, as with srun "
            f"--distribution=block. Received: SLURM_PROCID={index} of "
            f"{len(places)}, SLURM_NODEID={received[0]}, "
            f"SLURM_LOCALID={received[1]}"
        )


def _hosts(
    environ: Mapping[str, str], num_tasks: int, tasks_key: str
) -> list[Host]:
    """Returns the step's nodes, with the number of tasks on each."""

    def first_of(*keys: str) -> tuple[str, str]:
        for key in keys:
            if environ.get(key):
                return key, environ[key]
        raise InputError(f"Slurm: {keys[0]} is missing from the environment")

    key, nodes = first_of("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
    names = expand_node_list(nodes)
    tasks, counts = first_of(
        "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"
    )
    per_node = expand_tasks_per_node(counts)
    if len(per_node) != len(names) or sum(per_node) != num_tasks:
        raise InputError(
            f"Slurm: {key}, {tasks} and {tasks_key} must agree. Received: "
            f"{nodes}, {counts}, {num_tasks}"
        )
    if max(per_node) > _PORTS_PER_STEP:
        raise InputError(
            f"Slurm: at most {_PORTS_PER_STEP} tasks on a node. "
            f"Received: {tasks}={counts}"
        )
    return [Host(name, count) for name, count in zip(names, per_node)]


def _integer(environ: Mapping[str, str], key: str) -> int:
    text = environ.get(key, "")
    if not re.fullmatch(r"[0-9]+", text):
        raise InputError(f"Slurm: {key} must be a number. Received: {text!r}")
    return int(text)


def expand_node_list(text: str) -> list[str]:
    """Expands Slurm's short form of host names.

    Args:
        text: String such as `"gpu[01-03,07],login2"`.

    Returns:
        List of strings: `["gpu01", "gpu02", "gpu03", "gpu07", "login2"]`.

    Raises:
        InputError: If it can't be read.
    """
    # Commas inside brackets separate numbers; commas outside separate names.
    parts = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if not parts or ",".join(parts) != text:
        raise _wrong_node_list(text)
    return [name for part in parts for name in _expand_node(part, text)]


def _expand_node(part: str, text: str) -> list[str]:
    pieces = re.split(r"\[([^\]]*)\]", part)
    choices = [
        _expand_numbers(piece, text) if is_range else [piece]
        for piece, is_range in zip(pieces, itertools.cycle([False, True]))
    ]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _expand_numbers(ranges: str, text: str) -> Iterator[str]:
    for item in ranges.split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", item)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise _wrong_node_list(text)
        width = len(match[1])
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{width}d}"


def _wrong_node_list(text: str) -> InputError:
    return InputError(
        f"Expected Slurm's list of nodes, such as gpu[01-03,07],login2. "
        f"Received: {text!r}"
    )


def expand_tasks_per_node(text: str) -> list[int]:
    """Expands Slurm's `"4(x2),2"` to the list `[4, 4, 2]`.

    Raises:
        InputError: If it can't be read.
    """
    counts = []
    for item in text.split(","):
        match = re.fullmatch(r"([0-9]+)(?:\(x([0-9]+)\))?", item)
        if not match:
            raise InputError(
                "Expected Slurm's tasks per node, such as 4(x2),2. "
                f"Received: {text!r}"
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts
