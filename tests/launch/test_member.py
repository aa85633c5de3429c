"""A machine's launcher, with workers that are none."""

import select
import socket
import time

from kerasmgpu.launch import settings
from kerasmgpu.launch.controller import Controller
from kerasmgpu.launch.member import Channel, Member
from kerasmgpu.launch.processes import Ended
from kerasmgpu.signals import Recorder

TIMEOUT_SECONDS = 0.4


class SlowWorkers:
    """Workers that take their time to start, and end at once."""

    def __init__(self, seconds):
        self._seconds = seconds
        self._running = []

    def __len__(self):
        return len(self._running)

    def start(self, number, command, environment):
        time.sleep(self._seconds)
        self._running.append(number)

    def wait(self, seconds, *others):
        ended = [Ended(number, 0, []) for number in self._running]
        self._running = []
        return ended, select.select(others, [], [], seconds)[0]

    def kill(self):
        return []


def test_a_start_may_take_longer_than_the_time_out():
    checked = settings.check(
        ["true"],
        num_workers=12,
        timeout_seconds=TIMEOUT_SECONDS,
        environ={"CUDA_VISIBLE_DEVICES": "-1"},
    )
    ours, theirs = socket.socketpair()
    said = []
    controller = Controller(checked, theirs, None, said.append)
    ending = Member(
        checked,
        Channel(ours),
        SlowWorkers(0.1),
        Recorder(),
        said.append,
        {},
    ).run()
    controller.close()
    assert (ending.status, ending.message) == (0, ""), said
