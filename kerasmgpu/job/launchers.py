"""Resolves a job from the variables of other launchers: mpirun, torchrun …

They tell each process its rank, the number of processes and, at most, the
machine of the first one. The workers then exchange their addresses through the
first worker (`introduction.py`). Pure functions.

Sources: torchrun, https://docs.pytorch.org/docs/stable/elastic/run.html (also
`accelerate launch`; DeepSpeed's `launcher/launch.py` sets the same and
`LOCAL_SIZE`); Horovod's `runner/gloo_run.py`; Open MPI,
https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html; hydra, the
`mpiexec` of MPICH and Intel MPI; MVAPICH2's `mpirun_rsh`; HPE's PALS.
"""

import dataclasses
from collections.abc import Mapping

from kerasmgpu.errors import InputError
from kerasmgpu.job.addresses import is_loopback

HOST_VARIABLE = "MASTER_ADDR"
"""Environment variable with the machine of the first process."""

PORT_VARIABLE = "MASTER_PORT"
"""Environment variable: the workers meet at one of the ports behind it."""

_FIRST_PORT = 29500  # torchrun's.
_LOOPBACK = "127.0.0.1"
_NO_RUN = "none"  # torchrun's id of a run that has none.


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Where the workers of another launcher's job exchange their addresses.

    Args:
        launcher: String, its name for messages.
        host: String, name or address of the first worker's machine.
        port: Integer; the first worker listens on one of the ports behind it.
        is_local: Boolean, whether all workers are on this machine.
        run: String, what the launcher calls the job; may be empty.
        rank_variable: String, name of the variable with the process's rank.
        is_by_hand: Boolean, whether anything may have set the variables, and
            nothing but the port names the job: one port is for one job.
    """

    launcher: str
    num_workers: int
    host: str
    port: int
    is_local: bool
    run: str
    rank_variable: str
    is_by_hand: bool = False


@dataclasses.dataclass(frozen=True)
class _Launcher:
    """Names of a launcher's variables.

    Args:
        name: String, for messages.
        rank: String, variable with the process's rank.
        size: String, with the number of processes.
        local_size: Tuple of strings, with their number on this machine; one of
            them is set.
        run: Tuple of strings, with its name of the job.
        is_by_hand: Boolean, whether scripts set these variables as well.
    """

    name: str
    rank: str
    size: str
    local_size: tuple[str, ...]
    run: tuple[str, ...] = ()
    is_by_hand: bool = False


_LAUNCHERS = (
    _Launcher(
        "torchrun",
        "RANK",
        "WORLD_SIZE",
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
        ("TORCHELASTIC_RUN_ID",),
        is_by_hand=True,
    ),
    _Launcher(
        "horovodrun",
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        ("HOROVOD_LOCAL_SIZE",),
        ("HOROVOD_GLOO_RENDEZVOUS_PORT",),
    ),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("PMIX_NAMESPACE",),
    ),
    _Launcher(
        "mpirun",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Launcher(
        "mpiexec",
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"),
        ("PALS_APID",),
    ),
)
"""Launchers, those first that another one may have started."""


def place(
    environ: Mapping[str, str], complete: bool
) -> tuple[int, Meeting | None] | None:
    """Returns this process's rank and the meeting of its job.

    Args:
        complete: Boolean, whether to look for launchers that also told how
            many processes are on this machine, or for the others. Between the
            two come Slurm's variables: `srun` may set ranks for MPI as well.

    Returns:
        Tuple `(rank, meeting)`; the meeting is `None` for a single process.
        `None` if no such launcher started this process.

    Raises:
        InputError: If the variables are malformed, or don't suffice.
    """
    for launcher in _LAUNCHERS:
        if environ.get(launcher.rank) and environ.get(launcher.size):
            local = _first_set(environ, launcher.local_size)
            if bool(local) == complete:
                return _place(environ, launcher, local)
    # PMIx keeps the number of processes to itself; under Slurm that is known.
    if not complete and environ.get("PMIX_RANK"):
        if "SLURM_JOB_ID" not in environ:
            received = f"PMIX_RANK={environ['PMIX_RANK']}"
            raise _insufficient(
                "A launcher",
                "how many there are",
                f"RANK, WORLD_SIZE and {HOST_VARIABLE}, the machine of rank 0,",
                received,
            )
    return None


def _place(
    environ: Mapping[str, str], launcher: _Launcher, local_size: str
) -> tuple[int, Meeting | None]:
    size = _integer(environ, launcher, launcher.size)
    rank = _integer(environ, launcher, launcher.rank)
    local = _integer(environ, launcher, local_size) if local_size else 0
    if not rank < size or not local <= size:
        raise InputError(
            f"{launcher.name}: {launcher.rank} must be below {launcher.size}"
            f"{local_size and f', and {local_size} at most that'}. Received: "
            f"{_received(environ, launcher, local_size)}"
        )
    if size == 1:
        return rank, None
    host, is_local = _host(environ, launcher, local_size, local == size)
    run = _run(environ, launcher)
    meeting = Meeting(
        launcher=launcher.name,
        num_workers=size,
        host=host,
        port=_port(environ),
        is_local=is_local,
        run=run,
        rank_variable=launcher.rank,
        is_by_hand=launcher.is_by_hand and not run,
    )
    return rank, meeting


def _run(environ: Mapping[str, str], launcher: _Launcher) -> str:
    names = [environ[name] for name in launcher.run if environ.get(name)]
    return "" if names == [_NO_RUN] else " ".join(names)


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get(PORT_VARIABLE) or str(_FIRST_PORT)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 16:
        raise InputError(
            f"{PORT_VARIABLE} must be a port, 1 to 65535. Received: {text!r}"
        )
    return int(text)


def _host(
    environ: Mapping[str, str],
    launcher: _Launcher,
    local_size: str,
    is_local: bool,
) -> tuple[str, bool]:
    """Returns the first worker's machine, and whether it has all workers."""
    given = environ.get(HOST_VARIABLE, "").strip()
    received = _received(environ, launcher, local_size)
    if is_local or (not local_size and is_loopback(given)):
        return _LOOPBACK, True
    if not given:
        raise _insufficient(
            launcher.name,
            "on which machine the first one runs",
            f"{HOST_VARIABLE} to the machine of rank 0",
            received,
        )
    if is_loopback(given):
        raise InputError(
            f"{HOST_VARIABLE} must be a name of the first process's machine by "
            "which the others reach it, since there are processes on other "
            f"machines. Received: {HOST_VARIABLE}={given}, {received}"
        )
    return given, False


def _insufficient(
    launcher: str, what: str, wanted: str, received: str
) -> InputError:
    return InputError(
        f"{launcher} started this process as one of several, but doesn't tell "
        f"{what}. Set {wanted} for all processes, or start the program with "
        "kerasmgpu launch instead; KERASMGPU_SEPARATE=1 lets each process train "
        f"a model of its own. Received: {received}"
    )


def _received(
    environ: Mapping[str, str], launcher: _Launcher, local_size: str
) -> str:
    names = filter(None, (launcher.rank, launcher.size, local_size))
    return ", ".join(f"{name}={environ[name]}" for name in names)


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((name for name in names if environ.get(name)), "")


def _integer(environ: Mapping[str, str], launcher: _Launcher, name: str) -> int:
    text = environ[name]
    if not text.isascii() or not text.isdigit():
        raise InputError(
            f"{launcher.name}: {name} must be a number. Received: {text!r}"
        )
    return int(text)
