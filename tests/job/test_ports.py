"""Ports that are free, and stay so."""

import random
import socket

from kerasmgpu.job import ports


def test_free_ports_are_different_and_below_the_kernels():
    chosen = ports.free(50)
    assert len(set(chosen)) == 50
    assert all(map(ports.is_free, chosen))
    with socket.socket() as kernels:
        kernels.bind(("", 0))
        assert max(chosen) < kernels.getsockname()[1]


def test_port_in_use_is_not_free():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not ports.is_free(server.getsockname()[1])


def test_ports_as_told():
    assert ports.free(3, first=40000) == [40000, 40001, 40002]


def test_a_program_that_sets_a_seed_does_not_choose_the_ports():
    """Two notebooks on one machine may both set it, and start workers."""
    drawn = []
    for _ in range(2):
        random.seed(1)
        drawn.append(ports.free(3))
    assert drawn[0] != drawn[1]
