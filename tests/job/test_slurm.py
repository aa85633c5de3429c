"""Slurm's variables, as its manual documents them."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster, slurm

STEP = {
    "SLURM_JOB_ID": "1001",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "gpu[09-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "1",
}
"""The second of three tasks on two nodes."""


def test_a_task_of_a_step_is_a_worker():
    worker = cluster.from_environment(STEP)
    assert worker.index == 1
    # (1001 mod 234) blocks of 64 ports above 15000.
    assert worker.addresses == ("gpu09:19160", "gpu09:19161", "gpu10:19160")


def test_all_tasks_agree_and_other_jobs_differ():
    last = STEP | {
        "SLURM_PROCID": "2",
        "SLURM_NODEID": "1",
        "SLURM_LOCALID": "0",
    }
    addresses = cluster.from_environment(STEP).addresses
    assert cluster.from_environment(last).addresses == addresses
    for other in ({"SLURM_JOB_ID": "1002"}, {"SLURM_STEP_ID": "1"}):
        others = cluster.from_environment(STEP | other).addresses
        assert not set(addresses) & set(others)


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_ID": None},  # A batch script.
        {"SLURM_STEP_ID": "4294967290"},  # An interactive shell.
        {"SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_not_a_worker(changes):
    environ = {k: v for k, v in (STEP | changes).items() if v is not None}
    assert cluster.from_environment(environ) is None


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"SLURM_JOB_ID": "x"}, "SLURM_JOB_ID must be a number"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "must agree"),
        ({"SLURM_STEP_TASKS_PER_NODE": "3"}, "must agree"),
        ({"SLURM_STEP_NODELIST": "gpu[09-"}, "list of nodes"),
        ({"SLURM_STEP_NODELIST": ""}, "SLURM_STEP_NODELIST is missing"),
        ({"SLURM_PROCID": "3"}, "SLURM_PROCID=3 of 3"),
        # Cyclic: the second task is on the second node.
        ({"SLURM_NODEID": "1", "SLURM_LOCALID": "0"}, "block"),
    ],
)
def test_contradictions(changes, message):
    with pytest.raises(InputError, match=message):
        cluster.from_environment(STEP | changes)


@pytest.mark.parametrize(
    "text, names",
    [
        ("a", "a"),
        ("a,b", "a b"),
        ("gpu[01-03,07],login2", "gpu01 gpu02 gpu03 gpu07 login2"),
        ("n[9-11]", "n9 n10 n11"),
        ("r[1-2]n[0,3]-ib", "r1n0-ib r1n3-ib r2n0-ib r2n3-ib"),
    ],
)
def test_node_list(text, names):
    assert slurm.expand_node_list(text) == names.split()


@pytest.mark.parametrize(
    "text", ["", ",", "a,", "a[", "a[1", "a]", "a[2-1]", "a[x]", "a[1,]"]
)
def test_wrong_node_list(text):
    with pytest.raises(InputError, match="list of nodes"):
        slurm.expand_node_list(text)


def test_tasks_per_node():
    assert slurm.expand_tasks_per_node("4(x2),2") == [4, 4, 2]
    for text in ("", "4(x)", "4x2", "4,"):
        with pytest.raises(InputError, match="tasks per node"):
            slurm.expand_tasks_per_node(text)
