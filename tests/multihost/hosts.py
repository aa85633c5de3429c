"""Two hosts on one machine: network namespaces joined by a virtual cable."""

import contextlib
import os
import shutil
import subprocess

NAMES = ("kerasmgpu-a", "kerasmgpu-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
_CABLE = ("kerasmgpu0", "kerasmgpu1")


def why_not():
    """Why this machine can't have them; empty if it can."""
    if shutil.which("ip") is None:
        return "there is no `ip` command"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with two_hosts():
            return ""
    except subprocess.CalledProcessError as error:
        return f"`{' '.join(error.cmd)}` failed: {error.stderr.strip()}"


@contextlib.contextmanager
def two_hosts():
    """Makes the two hosts, and removes them at the end."""
    remove()
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", _CABLE[0], "type", "veth", "peer", "name", _CABLE[1])
        for name, end, address in zip(NAMES, _CABLE, ADDRESSES):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        remove()


def remove():
    """Removes both hosts, if they are there."""
    for name in NAMES:
        subprocess.run(
            ["ip", "netns", "del", name], capture_output=True, check=False
        )


def cut_the_cable():
    """Nothing arrives any more, and no connection is closed."""
    ip("-n", NAMES[0], "link", "set", _CABLE[0], "down")


def start(host, command, **settings):
    """Starts a command on host 0 or 1; returns its `subprocess.Popen`."""
    return subprocess.Popen(
        ["ip", "netns", "exec", NAMES[host], *command], **settings
    )


def ip(*arguments):
    """Runs `ip` with these arguments."""
    subprocess.run(
        ["ip", *arguments], check=True, capture_output=True, text=True
    )
