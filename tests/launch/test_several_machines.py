"""Two launchers on this machine's loopback addresses play two machines."""

import contextlib
import json
import signal
import socket
import sys

import pytest

from kerasmgpu.job import handshake, ports
from kerasmgpu.job.channel import Channel
from kerasmgpu.launch.controller import PURPOSE
from tests.launch.launching import (
    finish,
    is_alive,
    launcher,
    wait_for_files,
    wait_until,
)

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="needs 127.0.0.2 as an address, as Linux has",
)

_SAVING = """
save_on_sigterm()
write(f"up-{run}-{index}", os.getpid())
"""


@contextlib.contextmanager
def machines(folder, program, *flags):
    """Two launchers, and a function that starts one more."""
    port = ports.free(1)[0]
    hosts = "127.0.0.1:1,127.0.0.2:1"

    def start(rank, program=program):
        return launcher(
            folder,
            program,
            f"--hosts={hosts}",
            f"--rank={rank}",
            f"--port={port}",
            *flags,
        )

    # The second starts first: machines wait for each other.
    with start(1) as second, start(0) as first:
        yield first, second, start


def port_of(first):
    """Where rank 0 listens."""
    (flag,) = [word for word in first.args if word.startswith("--port=")]
    return int(flag.removeprefix("--port="))


def test_workers_know_each_other_and_statuses_agree(tmp_path):
    program = """
write(f"seen-{index}", len(config["cluster"]["worker"]))
hosts = [a.split(":")[0] for a in config["cluster"]["worker"]]
print(hosts)
wait_for("seen-0")
if index == 1:
    print("the cause")
    sys.exit(3)
time.sleep(60)
"""
    with machines(tmp_path, program) as (first, second, _):
        outputs = [finish(process) for process in (first, second)]
    assert wait_for_files(tmp_path, "seen-0", "seen-1") == [2, 2]
    for status, output in outputs:
        assert status == 3
        assert "worker 1 on 127.0.0.2 failed first: exit status 3" in output
        assert "  | the cause" in output
    assert "[0] ['127.0.0.1', '127.0.0.2']" in outputs[0][1]
    warning = "anyone who reaches the workers' ports can run code as you"
    assert [text.count(warning) for _, text in outputs] == [1, 0]


def test_job_goes_on_without_a_lost_machine(tmp_path):
    program = (
        _SAVING
        + """
write(f"size-{run}", len(config["cluster"]["worker"]))
time.sleep(60 if run == 0 else 0)
"""
    )
    flags = ("--max_restarts=1", "--min_workers=1", "--restart_wait_seconds=0")
    with machines(tmp_path, program, *flags) as (first, second, _):
        wait_for_files(tmp_path, "up-0-0", "up-0-1")
        second.kill()
        status, output = finish(first)
    assert status == 0
    assert "lost machine 127.0.0.2 (rank 1)" in output
    assert "continuing with 1 of 2 workers" in output
    assert wait_for_files(tmp_path, "saved-0", "size-1") == [0, 1]


@pytest.mark.slow
def test_lost_machine_that_comes_back_takes_part_again(tmp_path):
    program = _SAVING + "time.sleep(60 if run == 0 else 0)"
    flags = ("--max_restarts=1",)
    with machines(tmp_path, program, *flags) as (first, second, start):
        wait_for_files(tmp_path, "up-0-0", "up-0-1")
        second.kill()
        with start(1) as again:
            assert finish(first)[0] == 0
            assert finish(again)[0] == 0
    wait_for_files(tmp_path, "up-1-0", "up-1-1")


def test_too_few_workers_left_is_one_clear_message(tmp_path):
    program = _SAVING + "time.sleep(60)"
    flags = ("--max_restarts=1", "--restart_wait_seconds=0.2")
    with machines(tmp_path, program, *flags) as (first, second, _):
        wait_for_files(tmp_path, "up-0-0", "up-0-1")
        second.kill()
        status, output = finish(first)
    assert status == 1
    assert (
        "launch: machine 127.0.0.2 (rank 1) did not come back within 0.2 s: "
        "1 of 2 workers left, --min_workers=2"
    ) in output


def test_silent_machine_is_lost(tmp_path):
    program = _SAVING + "time.sleep(60)"
    flags = ("--timeout_seconds=1",)
    with machines(tmp_path, program, *flags) as (first, second, _):
        wait_for_files(tmp_path, "up-0-0", "up-0-1")
        second.send_signal(signal.SIGSTOP)
        status, output = finish(first)
    assert status == 1
    assert "no heartbeat for 1 s" in output


def test_without_its_controller_a_machine_ends_its_workers(tmp_path):
    program = _SAVING + "time.sleep(60)"
    with machines(tmp_path, program) as (first, second, _):
        pids = wait_for_files(tmp_path, "up-0-0", "up-0-1")
        first.kill()
        status, output = finish(second)
        wait_until(lambda: not any(map(is_alive, pids)), seconds=5)
    assert status == 1
    assert "lost the launcher of rank 0" in output
    wait_for_files(tmp_path, "saved-1")  # It was told before it was killed.


def test_preemption_of_one_machine_saves_the_job(tmp_path):
    program = _SAVING + "time.sleep(60)"
    with machines(tmp_path, program) as (first, second, _):
        wait_for_files(tmp_path, "up-0-0", "up-0-1")
        second.send_signal(signal.SIGTERM)
        statuses = [finish(process)[0] for process in (first, second)]
    assert statuses == [75, 75]
    wait_for_files(tmp_path, "saved-0", "saved-1")


def test_wrong_launchers_and_strangers_are_refused(tmp_path):
    program = _SAVING + "wait_for('stop')"
    with machines(tmp_path, program) as (first, second, start):
        wait_for_files(tmp_path, "up-0-0", "up-0-1")
        with start(1) as doubled:
            status, output = finish(doubled)
            assert (status, "rank 1 is in use" in output) == (1, True)
        with start(1, program="another") as another:
            status, output = finish(another)
            assert status == 1
            assert "rank 0 was started with --hosts=" in output
            assert "This is rank 1, --hosts=" in output
        address = "127.0.0.1", port_of(first)
        for said in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"1\n",
            b'{"type": "hello"}\n',
            b'{"type": "hello", "rank": 1, "settings": {}}\n',
            b'{"type": "hello", "rank": true, "settings": ""}\n',
            b'{"type": "hello", "rank": 2, "settings": ""}\n',
            b'{"type": "end", "rank": 1, "settings": ""}\n',
        ):
            for link in socket.create_connection(address, 5), shaken(*address):
                with link as stranger:
                    stranger.sendall(said)
                    assert stranger.recv(100) == b""
        (tmp_path / "stop").touch()
        statuses = [finish(process)[0] for process in (first, second)]
    assert statuses == [0, 0]


@pytest.mark.slow
def test_a_scan_of_the_port_does_no_harm(tmp_path):
    program = """
path = pathlib.Path(os.environ["KERASMGPU_JOB_TOKEN_FILE"])
write(f"token-{index}", int(path.read_text(), 16))
wait_for("stop")
"""
    with contextlib.ExitStack() as stack:
        port = ports.free(1)[0]
        flags = ["--hosts=127.0.0.1:1,127.0.0.2:1", f"--port={port}"]
        first = stack.enter_context(
            launcher(tmp_path, program, *flags, "--rank=0")
        )
        wait_until(lambda: is_open(port))
        for _ in range(50):
            socket.create_connection(("127.0.0.1", port), 5).close()
            for said in b"", bytes(range(256)):
                stranger = stack.enter_context(
                    socket.create_connection(("127.0.0.1", port), 5)
                )
                stranger.sendall(said)
        second = stack.enter_context(
            launcher(tmp_path, program, *flags, "--rank=1")
        )
        tokens = wait_for_files(tmp_path, "token-0", "token-1")
        (tmp_path / "stop").touch()
        outputs = [finish(process) for process in (first, second)]
    assert [status for status, _ in outputs] == [0, 0]
    assert "refused" not in outputs[0][1]
    assert tokens[0] == tokens[1] > 1 << 200


@pytest.mark.slow
def test_launchers_know_each_other_by_the_users_token(tmp_path, monkeypatch):
    program = """
path = pathlib.Path(os.environ["KERASMGPU_JOB_TOKEN_FILE"])
write(f"token-{index}", int(path.read_text(), 16))
wait_for("stop")
"""
    monkeypatch.setenv("KERASMGPU_JOB_TOKEN", "one")
    with machines(tmp_path, program) as (first, second, start):
        tokens = wait_for_files(tmp_path, "token-0", "token-1")
        for theirs in "another", "":
            monkeypatch.setenv("KERASMGPU_JOB_TOKEN", theirs)
            with start(1) as stranger:
                status, output = finish(stranger)
            assert status == 1
            assert "has another KERASMGPU_JOB_TOKEN. Set the same" in output
        (tmp_path / "stop").touch()
        assert [finish(p)[0] for p in (first, second)] == [0, 0]
    assert tokens[0] == tokens[1]


def shaken(host, port):
    """A connection to the launcher of rank 0, after the handshake."""
    link = socket.create_connection((host, port), 5)
    handshake.call(Channel(link), "", PURPOSE, 5)
    return link


def is_open(port):
    """Whether somebody listens there."""
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    return False


@pytest.mark.slow
def test_what_a_stranger_says_is_not_shown(tmp_path):
    hello = {"type": "hello", "rank": 1, "settings": "a\x1b[2Jb\nc"}
    with machines(tmp_path, "wait_for('stop')") as (first, second, _):
        wait_until(lambda: is_open(port_of(first)))
        with shaken("127.0.0.1", port_of(first)) as link:
            link.sendall(json.dumps(hello).encode() + b"\n")
            answer = json.loads(link.recv(10000))
        (tmp_path / "stop").touch()
        statuses_and_outputs = [finish(p) for p in (first, second)]
    assert answer["type"] == "refused"
    assert [status for status, _ in statuses_and_outputs] == [0, 0]
    assert "refused a launcher of rank 1: " in statuses_and_outputs[0][1]
    assert "[2J" not in statuses_and_outputs[0][1]
