"""`--isolate`: workers reach one another, and nobody else reaches them."""

import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.launch import isolation, settings
from tests import console
from tests.launch.launching import finish, launch, launcher, wait_for_files

NOBODY = 65534


def why_not():
    """Why no namespaces can be had here; empty if they can."""
    if shutil.which("unshare") is None:
        return "there is no `unshare` command"
    made = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "true"],
        capture_output=True,
        check=False,
        text=True,
    )
    return made.stderr.strip()


REASON = why_not()
needs_namespaces = pytest.mark.skipif(bool(REASON), reason=REASON or "none")

MEETING = """
import socket
names = [line.split(":")[0].strip() for line in open("/proc/net/dev")][2:]
print("interfaces", names)
host, port = config["cluster"]["worker"][0].split(":")
if index == 0:
    # As TensorFlow: on all interfaces.
    server = socket.create_server(("0.0.0.0", int(port)))
    write("port", port)
    wait_for("met")
else:
    wait_for("port")
    wait_for("tried")
    socket.create_connection((host, int(port)), 5)
    write("met", 1)
write(f"owner-{index}", os.getuid())
"""


def is_reached(port):
    """Whether a worker's port can be connected to from here."""
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_namespaces
@pytest.mark.parametrize("flags", [(), ("--isolate",)])
def test_only_workers_reach_a_workers_port(tmp_path, flags):
    with launcher(tmp_path, MEETING, "--num_workers=2", *flags) as process:
        (port,) = wait_for_files(tmp_path, "port")
        reached = is_reached(port)
        (tmp_path / "tried").touch()
        status, output = finish(process)
    assert status == 0, output
    assert reached is not bool(flags)
    assert ("interfaces ['lo']" in output) is bool(flags)
    assert wait_for_files(tmp_path, "owner-0", "owner-1") == [os.getuid()] * 2
    for name in "owner-0", "owner-1":
        assert (tmp_path / name).stat().st_uid == os.getuid()


# Not imported from the package: nobody may read that.
AS_ANOTHER_USER = """
import importlib.util, os, sys, types
for name in "kerasmgpu", "kerasmgpu.errors":
    sys.modules[name] = types.ModuleType(name)
sys.modules["kerasmgpu.errors"].InputError = ValueError
module = types.ModuleType("isolation")
exec(sys.stdin.read(), vars(module))
os.setgroups([])
os.setgid(NOBODY)
os.setuid(NOBODY)
# As after exec: who changes the user has no say over its own /proc files.
module.ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
sys.stdin.close()
module.enter()
print(os.getuid(), os.getgid(), len(open("/proc/net/dev").readlines()) - 2)
open("file", "w").close()
""".replace("NOBODY", str(NOBODY))


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_any_user_has_one_and_stays_who_they_are(tmp_path):
    tmp_path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER],
        cwd=tmp_path,
        input=pathlib.Path(isolation.__file__).read_text(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [str(NOBODY), str(NOBODY), "1"], done.stderr
    assert (tmp_path / "file").stat().st_uid == NOBODY


@needs_namespaces
def test_a_system_that_has_none_is_told_in_one_line(tmp_path):
    flags = ["--isolate", "--num_workers=1"]
    command = console.command("launch", *flags, "--", "touch", "started")
    forbid = "echo 0 > /proc/sys/user/max_net_namespaces"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c"]
        + [f'{forbid}; exec "$@"', "sh", *command],
        cwd=tmp_path,
        env=console.environment(CUDA_VISIBLE_DEVICES="-1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: --isolate needs a network namespace, and this system lets this "
        "user have none (the limit on their number is reached). Root can allow "
        "it: sysctl user.max_net_namespaces=10000\n"
    )
    assert not (tmp_path / "started").exists()


def test_other_machines_cannot_be_isolated():
    with pytest.raises(InputError, match="one machine"):
        settings.check(
            ["true"],
            hosts="a:1,b:1",
            rank=0,
            isolate=True,
            environ={"CUDA_VISIBLE_DEVICES": "-1"},
        )


@needs_namespaces
def test_the_end_of_an_isolated_job_is_that_of_any(tmp_path):
    program = "sys.exit(3 * (run == 0))"
    flags = ("--isolate", "--num_workers=2", "--max_restarts=1")
    status, output = launch(tmp_path, program, *flags)
    assert status == 0, output
    assert "restart 1 of 1" in output
