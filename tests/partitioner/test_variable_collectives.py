"""Who sends which part of a sharded variable to whom, between workers."""

import pytest

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Rows, Sharded

HOST = "/job:worker/replica:0/task:1/device:CPU:0"


def second_worker(num_devices, shares_memory=True):
    """The replicas of the second of two workers."""
    devices = [f"{HOST[:-1]}{number}" for number in range(num_devices)]
    return CollectiveReplicas(Mesh.on(devices, HOST, 1, 2, shares_memory))


@pytest.mark.parametrize(
    ("inner", "sizes"),
    # Rows of a matrix, and those after a reshape from [5, 4] to [10, 2].
    [(1, [3, 2]), (2, [6, 4])],
)
def test_rows_stay_together(inner, sizes):
    kind = Sharded(0, Rows(5, are_of_variable=True), 1, inner)
    replicas = second_worker(1)
    assert replicas._sizes(kind) == sizes
    assert list(replicas.members.own) == [1]


def test_hosts_send_what_their_replicas_have():
    kind = Sharded(0, Rows(10, are_of_variable=True))
    replicas = second_worker(2)
    assert replicas.members.name == "hosts"
    assert replicas._sizes(kind, by_worker=True) == [6, 4]
    assert list(replicas.members.own) == [1]


def test_gpus_send_by_themselves():
    kind = Sharded(0, Rows(10, are_of_variable=True))
    replicas = second_worker(2, shares_memory=False)
    members = replicas.members
    assert members.name == "replicas"
    assert replicas._sizes(kind) == [3, 3, 2, 2]
    assert list(members.own) == [2, 3]
    assert list(members.places) == [0, 1]
