"""Validates a launcher's settings before it starts anything."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence

from kerasmgpu.errors import (
    InputError,
    checked_integer,
    checked_number,
    checked_path,
)
from kerasmgpu.job import cluster, handshake, job_token, links, watch
from kerasmgpu.job.addresses import Host, join_address, parse_hosts
from kerasmgpu.launch import gpus
from kerasmgpu.launch.job_state import Policy

_MOST_WORKERS = 4096  # Per machine: each needs a port.


@dataclasses.dataclass(frozen=True)
class Settings:
    """Validated settings of a launcher.

    Args:
        command: Tuple of strings, the command of every worker.
        hosts: Tuple of `addresses.Host`, the machines by rank.
        rank: Integer, this machine's index in `hosts`.
        timeout_seconds: Number, heartbeat time-out of machines and workers.
        port: Integer, where rank 0 listens if there are several machines.
        first_worker_port: Integer, first of the workers' fixed ports, or
            `None`.
        worker_log_dir: Path, or `None`.
        isolate: Boolean, whether workers run in a network namespace.
        token: String, the user's shared secret of all launchers; empty for
            none.
        note: String, a line for the user about the number of workers; may be
            empty.
    """

    command: tuple[str, ...]
    hosts: tuple[Host, ...]
    rank: int
    devices: gpus.Gpus
    devices_per_worker: int
    policy: Policy
    timeout_seconds: float
    port: int
    first_worker_port: int | None
    worker_log_dir: pathlib.Path | None
    isolate: bool
    token: str = dataclasses.field(default="", repr=False)
    note: str = ""

    @property
    def heartbeat_seconds(self) -> float:
        """Number, seconds without a message until a heartbeat is sent."""
        return self.timeout_seconds / links.BEATS_PER_TIMEOUT

    @property
    def num_workers(self) -> int:
        """Integer, number of workers of this machine."""
        return self.hosts[self.rank].num_workers

    @property
    def controller(self) -> str:
        """String, the address where rank 0 listens."""
        return join_address(self.hosts[0].name, self.port)

    def run_token(self, drawn: str) -> str:
        """Returns the secret of a run's workers; rank 0 drew `drawn` for all."""
        return handshake.derive(self.token, f"run {drawn}").hex()

    def shared(self) -> str:
        """Returns the settings that must be equal on all launchers."""
        hosts = [join_address(h.name, h.num_workers) for h in self.hosts]
        text = f"--hosts={','.join(hosts)} -- {' '.join(self.command)}"
        # A command may contain bytes that are not UTF-8; JSON can't.
        return text.encode(errors="backslashreplace").decode()

    def digest(self) -> str:
        """Returns a digest of `shared()`."""
        return hashlib.sha256(self.shared().encode()).hexdigest()


def check(
    command: Sequence[str],
    hosts: str | None = None,
    num_workers: int | None = None,
    rank: int | None = None,
    devices_per_worker: int = 1,
    max_restarts: int = 0,
    min_workers: int | None = None,
    timeout_seconds: float = watch.TIMEOUT_SECONDS,
    grace_seconds: float = 30.0,
    exit_wait_seconds: float = 60.0,
    start_wait_seconds: float = 600.0,
    restart_wait_seconds: float = 60.0,
    port: int = 29400,
    first_worker_port: int | None = None,
    worker_log_dir: str | os.PathLike[str] | None = None,
    isolate: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Validates the settings; every flag is a keyword.

    Args:
        command: Sequence of strings: a program with its arguments; or `-m`
            and a module, or a `.py` file, for this Python.
        hosts: String, machines of the job and their numbers of workers, such
            as a:4,b:4.
        num_workers: Integer, workers on this machine. Default: as many as its
            GPUs allow, and one on the CPU where there is no GPU.
        rank: Integer, index of this machine in --hosts, from 0. Default:
            SLURM_NODEID or JOB_COMPLETION_INDEX.
        devices_per_worker: Integer, GPUs of each worker, with a replica on
            each.
        max_restarts: Integer, times to restart the job after a worker fails, is
            preempted (exit status 75) or its machine is lost.
        min_workers: Integer, workers with which to continue if a machine does
            not come back. Default: all.
        timeout_seconds: Number, seconds without a heartbeat until a machine or
            worker is lost.
        grace_seconds: Number, seconds for workers to save and end before they
            are killed.
        exit_wait_seconds: Number, seconds for others to end once a worker has
            ended without error.
        start_wait_seconds: Number, seconds that machines wait for each other
            at the start.
        restart_wait_seconds: Number, seconds that a restart waits for a lost
            machine to come back.
        port: Integer, port of the launcher of rank 0, to which the others
            connect.
        first_worker_port: Integer, first port of a machine's workers, for
            firewalls. Default: free ports below the kernel's ephemeral ones
            (mostly 20000 to 32767).
        worker_log_dir: Path of a folder for the workers' output, appended to
            worker-N.log.
        isolate: Boolean, whether to run the workers in their own network
            namespace, which nothing else reaches. For one machine, without
            downloads.
        environ: Mapping of environment variables. Defaults to `os.environ`.

    Returns:
        `Settings`.

    Raises:
        InputError: If a setting is invalid or not possible on this machine.
    """
    checked_integer(devices_per_worker, "devices_per_worker", 1)
    found = gpus.visible(environ)
    note = found.note()
    if hosts is None:
        if rank not in (None, 0):
            raise InputError(f"--rank={rank} needs --hosts=a:4,b:4")
        _require_one_launcher(environ)
        if num_workers is None:
            num_workers = max(len(found.names) // devices_per_worker, 1)
            if not found.names:
                where = "" if found.unlisted else ", on the CPU"
                note = (
                    f"{found.describe()}, so there is one worker{where}; "
                    "--num_workers=2 starts two"
                )
        checked_integer(num_workers, "num_workers", 1)
        machines: tuple[Host, ...] = (Host("127.0.0.1", num_workers),)
        rank = 0
    else:
        machines = _machines(hosts, num_workers)
        rank = _rank(rank, machines, environ)
    if isolate and len(machines) > 1:
        raise InputError(
            "--isolate is for the workers of one machine: others could not be "
            f"reached. Received: --hosts={hosts}"
        )
    _require_few(machines)
    found.require(machines[rank].num_workers, devices_per_worker)
    policy = Policy(
        max_restarts=checked_integer(max_restarts, "max_restarts", 0),
        min_workers=_min_workers(min_workers, max_restarts, machines),
        grace_seconds=_seconds(grace_seconds, "grace_seconds"),
        exit_wait_seconds=_seconds(exit_wait_seconds, "exit_wait_seconds"),
        start_wait_seconds=_seconds(start_wait_seconds, "start_wait_seconds"),
        restart_wait_seconds=_seconds(
            restart_wait_seconds, "restart_wait_seconds"
        ),
    )
    return Settings(
        command=_command(command),
        hosts=machines,
        rank=rank,
        devices=found,
        devices_per_worker=devices_per_worker,
        policy=policy,
        timeout_seconds=checked_number(timeout_seconds, "timeout_seconds"),
        port=_port(port, "port", 1),
        first_worker_port=first_worker_port
        and _port(
            first_worker_port, "first_worker_port", machines[rank].num_workers
        ),
        worker_log_dir=_folder(worker_log_dir),
        isolate=isolate,
        token=environ.get(job_token.VARIABLE, ""),
        note=note,
    )


def _seconds(value: float, name: str) -> float:
    return checked_number(value, name, zero_allowed=True)


def _machines(hosts: str, num_workers: int | None) -> tuple[Host, ...]:
    if num_workers is not None:
        raise InputError(
            "Give either --hosts, with the number of workers of each machine, "
            f"or --num_workers for this one. Received: --hosts={hosts} "
            f"--num_workers={num_workers}"
        )
    return parse_hosts(hosts)


def _require_one_launcher(environ: Mapping[str, str]) -> None:
    worker = cluster.from_environment(environ)
    if worker is not None:
        raise InputError(
            f"This launcher is process {worker.index} of {worker.num_workers} "
            "that another launcher (or TF_CONFIG) describes; each would start "
            "a job of its own. Start the program itself instead: it joins that "
            "job. Or give --hosts, and start one launcher per machine"
        )


def _require_few(machines: Sequence[Host]) -> None:
    for host in machines:
        if host.num_workers > _MOST_WORKERS:
            raise InputError(
                f"A machine has at most {_MOST_WORKERS} workers. Received: "
                f"{host.num_workers} on {host.name}"
            )


def _rank(
    rank: int | None, machines: Sequence[Host], environ: Mapping[str, str]
) -> int:
    """Returns this machine's rank: from the flag, Slurm or Kubernetes."""
    source = "--rank"
    if rank is None:
        source = "SLURM_NODEID" if "SLURM_STEP_ID" in environ else ""
        if not environ.get(source):
            source = "JOB_COMPLETION_INDEX"
        text = environ.get(source, "")
        if source == "SLURM_NODEID":
            _require_one_task_per_node(environ, machines)
        if text.isdecimal():
            rank = int(text)
        elif len(machines) == 1:
            rank = 0
        else:
            raise InputError(
                "The rank of this machine is not known. Give --rank=0 on "
                f"{machines[0].name}, --rank=1 on {machines[1].name} …; only "
                "srun and indexed Kubernetes Jobs set it"
            )
    if not 0 <= rank < len(machines):
        raise InputError(
            f"--hosts names {len(machines)} machines, ranks 0 to "
            f"{len(machines) - 1}. Received: {source}={rank}"
        )
    return rank


def _require_one_task_per_node(
    environ: Mapping[str, str], machines: Sequence[Host]
) -> None:
    tasks = environ.get("SLURM_STEP_NUM_TASKS", str(len(machines)))
    if tasks != str(len(machines)):
        raise InputError(
            f"Start one launcher per machine of --hosts: srun --nodes="
            f"{len(machines)} --ntasks-per-node=1. Received: {tasks} tasks"
        )


def _min_workers(
    min_workers: int | None, max_restarts: int, machines: Sequence[Host]
) -> int | None:
    if min_workers is None:
        return None
    checked_integer(min_workers, "min_workers", 1)
    total = sum(host.num_workers for host in machines)
    if min_workers > total:
        raise InputError(
            f"--min_workers={min_workers} is more than all workers together: "
            f"{total}"
        )
    if max_restarts == 0:
        raise InputError(
            "--min_workers applies to restarts. Received: --max_restarts=0; "
            "give at least 1"
        )
    return min_workers


def _port(port: int, name: str, count: int) -> int:
    port = checked_integer(port, name, 1)
    if port + count - 1 > 65535:
        raise InputError(f"Ports end at 65535. Received: --{name}={port}")
    return port


def _command(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the command, after checking that program and script exist."""
    words = list(words)
    if not words:
        raise InputError(
            "There is no command for the workers. Give one, such as: kerasmgpu "
            "launch --num_workers=2 train.py"
        )
    if words[0] == "-m" or words[0].endswith(".py"):
        words.insert(0, sys.executable)
    if shutil.which(words[0]) is None:
        raise InputError(
            f"Can't find the program {words[0]!r}. Expected python train.py, "
            "train.py or -m module"
        )
    script = words[1] if len(words) > 1 else ""
    if script.endswith(".py") and not os.path.exists(script):
        raise InputError(f"Can't find the file {script!r} in {os.getcwd()}")
    return tuple(words)


def _folder(
    worker_log_dir: str | os.PathLike[str] | None,
) -> pathlib.Path | None:
    if worker_log_dir is None:
        return None
    folder = pathlib.Path(checked_path(worker_log_dir, "worker_log_dir"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(
            f"--worker_log_dir={worker_log_dir} is not a folder"
        ) from None
    return folder
