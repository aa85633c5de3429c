"""Jobs with the same variables, on one machine: none gets another's worker.

Each case starts two jobs of two workers at the same time. A job that meets has
its own workers, and the other one says in a line why it ends.
"""

import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from kerasmgpu.job import cluster, port_claims, ports, rivals
from kerasmgpu.job.worker_processes import Process

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs /proc"
)

PROGRAM = str(pathlib.Path(__file__).with_name("started_program.py"))

TRAINING = {"SECONDS_OF_TRAINING": "9"}
"""So long a job has its port: longer than the other one takes to start."""

LAUNCHER = """
import json, subprocess, sys
started = [subprocess.Popen(c, env=e) for c, e in json.loads(sys.argv[1])]
sys.exit(max(process.wait() for process in started))
"""
"""A launcher that waits for its workers, as DeepSpeed's."""


def by_hand(rank, port):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }


def deepspeed(rank, port):
    return by_hand(rank, port) | {"LOCAL_RANK": str(rank), "LOCAL_SIZE": "2"}


def torchrun(rank, port):
    return deepspeed(rank, port) | {"TORCHELASTIC_RUN_ID": "none"}


def tf_config(rank, port):
    workers = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
    task = {"type": "worker", "index": rank}
    config = {"cluster": {"worker": workers}, "task": task}
    return {"TF_CONFIG": json.dumps(config)}


def mpich(rank, port):
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}


def open_mpi(rank, port):
    """Without its name of the job: older releases give none."""
    names = ("RANK", "SIZE", "LOCAL_SIZE")
    values = zip(names, (str(rank), "2", "2"))
    return {f"OMPI_COMM_WORLD_{name}": value for name, value in values}


def started(command, environ, **settings):
    return subprocess.Popen(
        command,
        env={**os.environ, **TRAINING, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **settings,
    )


def outcome(folder, processes):
    """Returns what processes print, and the jobs of workers that have met."""
    texts = [process.communicate(timeout=120)[0] for process in processes]
    met = collections.defaultdict(list)
    for path in folder.iterdir():
        job, index, _ = path.name.split("-")
        met[path.read_text()].append((job, int(index)))
    return texts, [sorted(workers) for workers in met.values()]


def two_jobs(folder, variables, how, seed=1):
    """Starts both jobs, each with worker 1 late or early; returns its outcome."""
    draws, port = random.Random(seed), ports.free(1)[0]
    commands = {}
    for job in "ab":
        for rank in (0, 1):
            # What tells jobs apart is their command, or a variable only.
            name = "x" if how == "variable" else job
            pause = f"{2 * draws.random():.1f}"
            command = [sys.executable, PROGRAM, str(folder), name, pause]
            environ = variables(rank, port) | {"SEED": job, **TRAINING}
            if how in ("inside", "inside, one parent"):
                command.append(environ.pop("RANK"))
            commands[job, rank] = command, environ
    if how in ("launcher", "inside"):
        texts = [
            json.dumps([(c, {**os.environ, **e}) for c, e in workers])
            for workers in (
                [commands[job, 0], commands[job, 1]] for job in "ab"
            )
        ]
        launchers = [[sys.executable, "-c", LAUNCHER, text] for text in texts]
        return outcome(folder, [started(each, {}) for each in launchers])
    mixed = list(commands.values())
    draws.shuffle(mixed)
    if how == "shell":
        mixed = [(["sh", "-c", f"{' '.join(c)}; exit $?"], e) for c, e in mixed]
    return outcome(folder, [started(c, e) for c, e in mixed])


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "variables, how",
    [
        pytest.param(deepspeed, "launcher", marks=pytest.mark.slow),
        (by_hand, "variable"),
        (tf_config, "one parent"),
        pytest.param(torchrun, "launcher", marks=pytest.mark.slow),
        pytest.param(by_hand, "shell", marks=pytest.mark.slow),
        pytest.param(by_hand, "one parent", marks=pytest.mark.slow),
        pytest.param(by_hand, "inside", marks=pytest.mark.slow),
        pytest.param(tf_config, "launcher", marks=pytest.mark.slow),
        pytest.param(tf_config, "variable", marks=pytest.mark.slow),
    ],
)
def test_of_two_jobs_with_one_port_the_second_ends(tmp_path, variables, how):
    texts, met = two_jobs(tmp_path, variables, how)
    ((first, second),) = met
    assert (first[0], first[1], second[1]) == (second[0], 0, 1)
    refused = "".join(texts)
    assert "another job" in refused
    port = (
        "MASTER_PORT"
        if variables is not tf_config
        else "ports? of its own|other port"
    )

    assert re.search(port, refused)
    for line in refused.splitlines():
        assert line.startswith("error: ")


@pytest.mark.slow
def test_processes_that_show_nothing_are_not_mixed(tmp_path):
    """All are children of one process, and set their ranks themselves."""
    texts, met = two_jobs(tmp_path, by_hand, "inside, one parent")
    assert all(len({job for job, _ in workers}) == 1 for workers in met)
    assert "another job on this machine" in "".join(texts)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("variables", [mpich, open_mpi])
def test_jobs_of_launchers_that_set_no_port_run_at_once(tmp_path, variables):
    texts, met = two_jobs(tmp_path, variables, "launcher")
    assert sorted(met) == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)]]
    assert "".join(texts) == ""


def test_one_job_after_the_other_has_the_same_port(tmp_path):
    port = ports.free(1)[0]
    for job in "ab":
        command = [sys.executable, PROGRAM, str(tmp_path), job]
        environ = {"SECONDS_OF_TRAINING": "0"}
        made = [by_hand(rank, port) | environ for rank in (0, 1)]
        processes = [started(command, e) for e in made]
        texts, met = outcome(tmp_path, processes)
        assert texts == ["", ""]
    assert sorted(met) == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)]]


def test_workers_started_in_terminals_of_their_own_meet(tmp_path):
    """Each has another parent, which starts nothing else."""
    port = ports.free(1)[0]
    command = f"{sys.executable} {PROGRAM} {tmp_path} a; exit $?"
    texts, met = outcome(
        tmp_path,
        [
            started(
                ["sh", "-c", f"export RANK={rank}; {command}"],
                {k: v for k, v in by_hand(0, port).items() if k != "RANK"},
                start_new_session=True,
            )
            for rank in (0, 1)
        ],
    )
    assert (texts, met) == (["", ""], [[("a", 0), ("a", 1)]])


# The parts ------------------------------------------------------------------


def process(pid, index, parent=1, command=("train.py",), **environ):
    items = frozenset(f"{k}={v}" for k, v in environ.items())
    return Process(pid, pid, ((parent, 0), (1, 0)), index, "/", command, items)


@pytest.mark.parametrize(
    "own, other",
    [
        ({"parent": 7}, {"parent": 8}),
        ({"command": ("t.py", "a", "1")}, {"command": ("t.py", "b", "1")}),
        ({"SEED": 1}, {"SEED": 2}),
        ({}, {}),  # The older one belongs to the older one.
    ],
)
def test_the_nearest_is_of_this_job(own, other):
    mine, theirs = process(10, 0, **own), process(11, 1, **own)
    stranger = process(12, 1, **other)
    both = [theirs, stranger]
    assert rivals._better(mine, [mine], theirs, both) is None
    assert rivals._better(mine, [mine], stranger, both) is theirs


def test_a_child_process_is_a_part_of_its_worker():
    found = rivals.Rivals(cluster.Worker(("a:1", "b:1"), 0))
    worker = process(20, 1, parent=5)
    child = Process(30, 30, ((20, 20), (5, 0)), 1)
    found._seen = {p.key: p for p in (worker, child)}
    assert found._top(30) is worker
    assert found._tops(1) == [worker]


@pytest.mark.parametrize("programs, is_doubtful", [(2, False), (4, True)])
def test_processes_of_a_job_that_has_ended_count(
    monkeypatch, programs, is_doubtful
):
    """A worker saw them when it began to wait for its late worker 0."""
    monkeypatch.setattr(rivals, "machine", lambda: "here")
    monkeypatch.setattr(rivals, "programs_of", lambda parent: 2)
    monkeypatch.setattr(rivals, "workers_like", lambda worker: [])
    monkeypatch.setattr(
        rivals, "parent_and_start", lambda pid: (os.getppid(), 0)
    )
    found = rivals.Rivals(cluster.Worker(("a:1", "b:1"), 0))
    told = {"pid": 5, "machine": "here", "programs": programs}
    assert found.is_doubtful(told) is is_doubtful


def test_a_port_is_claimed_by_one_process_as_long_as_it_lives():
    (port,) = ports.free(1)
    assert port_claims.holder(port) is None
    code = (
        "import sys; from kerasmgpu.job import port_claims as c;"
        f"print(c.claim({port}), c.claim({port}), flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "True True\n"
        assert not port_claims.claim(port)
        assert port_claims.holder(port) == other.pid
        other.stdin.close()
        other.wait()
    assert port_claims.holder(port) is None
