"""What rank 0 sends and does by the number of machines, in counts."""

import json
import socket
import time

import pytest

from kerasmgpu.job.addresses import Host
from kerasmgpu.job.channel import Channel
from kerasmgpu.launch import controller as controllers
from kerasmgpu.launch import settings
from kerasmgpu.launch.controller import Controller
from kerasmgpu.launch.job_state import Job, Policy

POLICY = Policy(
    max_restarts=1,
    min_workers=None,
    grace_seconds=30.0,
    exit_wait_seconds=60.0,
    start_wait_seconds=600.0,
    restart_wait_seconds=60.0,
)


def sent_by_a_job(machines):
    """Messages and bytes of a job whose last worker fails twice."""
    sent = []
    hosts = [Host(f"machine-{rank:03d}", 1) for rank in range(machines)]
    job = Job(hosts, POLICY, lambda _, **m: sent.append(m), print, 0.0)
    for rank in range(machines):
        job.on_joined(rank, 0.0)
    for run, now in enumerate((20.0, 90.0)):
        job.on_time(now - 10)
        for rank in range(machines):
            job.on_ports(rank, run, [20000 + rank], now - 10)
        for number in range(machines):
            status = int(number == machines - 1)
            job.on_ended(number, run, number, status, [], now)
    assert job.is_finished
    # TF_CONFIG has every address: that all machines get them is inherent.
    size = sum(len(json.dumps({**m, "addresses": 0})) for m in sent)
    return len(sent), size


def test_messages_and_bytes_grow_as_the_machines_do():
    small, middle, large = map(sent_by_a_job, (16, 64, 256))
    for of_small, of_middle, of_large in zip(small, middle, large):
        assert of_large - of_middle <= 4.2 * (of_middle - of_small)


@pytest.mark.slow
def test_a_message_of_one_machine_is_no_look_at_all(monkeypatch):
    looks = []
    monkeypatch.setattr(
        Controller, "_look_after", lambda self, rank, _: looks.append(rank)
    )
    checked = settings.check(
        ["true"],
        hosts=",".join(f"machine-{rank}:1" for rank in range(16)),
        rank=0,
        environ={"CUDA_VISIBLE_DEVICES": "-1"},
    )
    pairs = [socket.socketpair() for _ in range(16)]
    others = [Channel(ours) for ours, _ in pairs]
    began = time.monotonic()
    for rank, channel in enumerate(others):
        hello = {"rank": rank, "settings": checked.digest()}
        channel.send(type="hello", **hello)
    control = Controller(checked, pairs[0][1], None, lambda _: None)
    for rank in range(1, 16):
        control._arrive(
            Channel(pairs[rank][1]), Channel(pairs[rank][1]).receive_one(5)
        )
    for channel in others:
        assert channel.receive()[-1]["type"] == "prepare"
    for _ in range(100):  # One at a time: each wakes the controller.
        others[3].send(type="ports", run=-1, ports=[])
        time.sleep(0.002)
    seconds = time.monotonic() - began
    assert len(looks) <= 16 * (seconds / controllers._TICK_SECONDS + 2)
    for channel in others:
        channel.close()
    control.close()
