"""Real processes on one machine: environment, failures, signals, orphans."""

import json
import signal

import pytest

from kerasmgpu.job import ports
from tests.launch.launching import (
    finish,
    is_alive,
    launch,
    launcher,
    wait_for_files,
    wait_until,
)

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGCONT"), reason="needs POSIX signals"
)


def test_each_worker_has_its_place_and_prefix(tmp_path):
    status, output = launch(
        tmp_path,
        "print(json.dumps(config), os.environ['KERASMGPU_TIMEOUT_SECONDS'])",
        "--num_workers=3",
        "--timeout_seconds=7",
    )
    assert status == 0
    first, *lines = output.splitlines()
    assert first == "launch: starting 3 workers"
    lines = sorted(lines)
    assert [line[:4] for line in lines] == ["[0] ", "[1] ", "[2] "]
    configs = [json.loads(line[4:].rpartition(" ")[0]) for line in lines]
    assert [c["task"]["index"] for c in configs] == [0, 1, 2]
    addresses = configs[0]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    assert all(c["cluster"] == configs[0]["cluster"] for c in configs)
    assert all(line.endswith(" 7") for line in lines)


def test_output_goes_to_files_too(tmp_path):
    launch(
        tmp_path,
        "print('hello from', index)",
        "--num_workers=2",
        "--worker_log_dir=logs",
    )
    assert (tmp_path / "logs/worker-1.log").read_text() == "hello from 1\n"


def test_first_failure_is_named_not_its_consequence(tmp_path):
    status, output = launch(
        tmp_path,
        """
if index == 1:
    print("the cause")
    write("dead", 1)
    sys.exit(3)
wait_for("dead")
time.sleep(0.05)
print("connection lost")
sys.exit(1)
""",
        "--num_workers=2",
    )
    assert status == 3
    assert "worker 1 on 127.0.0.1 failed first: exit status 3" in output
    assert "  | the cause" in output
    assert "worker 0 on 127.0.0.1 failed first" not in output


def test_signal_that_kills_a_worker_is_the_jobs_status(tmp_path):
    status, output = launch(
        tmp_path,
        """
if index == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(60)
""",
        "--num_workers=2",
    )
    assert status == 128 + signal.SIGSEGV
    assert "worker 0 on 127.0.0.1 failed first: killed by SIGSEGV" in output


def test_worker_that_ends_early_is_told(tmp_path):
    status, output = launch(
        tmp_path,
        "time.sleep(60 * index)",
        "--num_workers=2",
        "--exit_wait_seconds=0.3",
    )
    assert status == 1
    assert "worker 0 on 127.0.0.1 ended without error while 1 cont" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_lets_workers_save(tmp_path, number):
    program = "save_on_sigterm(); write(f'up-{index}', 1); time.sleep(60)"
    with launcher(tmp_path, program, "--num_workers=2") as process:
        wait_for_files(tmp_path, "up-0", "up-1")
        process.send_signal(number)
        status, output = finish(process)
    assert status == 75
    assert "start the same command again" in output
    assert wait_for_files(tmp_path, "saved-0", "saved-1") == [0, 0]


def test_signal_without_a_save_is_the_status(tmp_path):
    program = "write(f'up-{index}', 1); time.sleep(60)"
    with launcher(tmp_path, program, "--num_workers=1") as process:
        wait_for_files(tmp_path, "up-0")
        process.send_signal(signal.SIGTERM)
        status, _ = finish(process)
    assert status == 128 + signal.SIGTERM


_STUBBORN = """
signal.signal(signal.SIGTERM, lambda *_: write(f"told-{index}", 1))
write(f"up-{index}", os.getpid())
while True:
    time.sleep(60)
"""


def test_second_interrupt_kills_at_once(tmp_path):
    with launcher(tmp_path, _STUBBORN, "--num_workers=2") as process:
        pids = wait_for_files(tmp_path, "up-0", "up-1")
        process.send_signal(signal.SIGINT)
        wait_for_files(tmp_path, "told-0", "told-1")
        process.send_signal(signal.SIGINT)
        status, _ = finish(process, seconds=5)
    assert status == 130
    assert not any(map(is_alive, pids))


def test_who_does_not_end_is_killed_after_the_grace(tmp_path):
    flags = ("--num_workers=2", "--grace_seconds=0.3")
    with launcher(tmp_path, _STUBBORN, *flags) as process:
        wait_for_files(tmp_path, "up-0", "up-1")
        process.send_signal(signal.SIGTERM)
        status, output = finish(process, seconds=5)
    assert status == 143
    assert "killed after the grace period: worker 0, worker 1" in output


_WITH_CHILD = """
child = subprocess.Popen(["sleep", "60"])
write(f"child-{index}", child.pid)
write(f"up-{index}", os.getpid())
"""


def test_a_stopped_worker_is_woken_up_to_end(tmp_path):
    status, output = launch(
        tmp_path,
        """
save_on_sigterm()
if index == 1:
    write("up", 1)
    os.kill(os.getpid(), signal.SIGSTOP)
wait_for("up")
time.sleep(0.2)
sys.exit(3)
""",
        "--num_workers=2",
        "--grace_seconds=60",
    )
    assert status == 3
    assert wait_for_files(tmp_path, "saved-1") == [0]
    assert "killed" not in output


def test_no_orphan_when_the_launcher_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = _WITH_CHILD + "time.sleep(60)"
    with launcher(tmp_path, program, "--num_workers=2") as process:
        names = ("up-0", "up-1", "child-0", "child-1")
        pids = wait_for_files(tmp_path, *names)
        assert all(map(is_alive, pids))
        process.kill()
        wait_until(lambda: not any(map(is_alive, pids)), seconds=5)
    assert not list(tmp_path.glob("kerasmgpu-token-*"))


def test_what_a_worker_leaves_behind_is_ended(tmp_path):
    status, _ = launch(tmp_path, _WITH_CHILD, "--num_workers=1")
    (pid,) = wait_for_files(tmp_path, "child-0")
    assert status == 0
    assert not is_alive(pid)


def test_killed_guard_takes_its_worker_along(tmp_path):
    program = """
write(f"up-{index}", os.getpid())
write("guard", os.getppid())
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(60)
"""
    status, _ = launch(tmp_path, program, "--num_workers=1")
    (pid,) = wait_for_files(tmp_path, "up-0")
    assert status == 128 + signal.SIGKILL
    assert not is_alive(pid)


def test_failed_job_is_started_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    status, output = launch(
        tmp_path,
        """
text = pathlib.Path(os.environ["KERASMGPU_JOB_TOKEN_FILE"]).read_text()
token = int(text, 16)
assert not any(text in value for value in os.environ.values())
write(f"token-{run}-{index}", token)
wait_for(f"token-{run}-{1 - index}")
sys.exit(3 * (run == 0))
""",
        "--num_workers=2",
        "--max_restarts=2",
    )
    assert status == 0
    assert "failed first: exit status 3" in output
    assert "restart 1 of 2 in 1 s" in output
    assert "restart 2" not in output
    names = [f"token-{run}-{index}" for run in (0, 1) for index in (0, 1)]
    one, two, three, four = wait_for_files(tmp_path, *names)
    assert one == two != three == four
    assert not list(tmp_path.glob("kerasmgpu-token-*"))


def test_a_token_of_the_users_reaches_no_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("KERASMGPU_JOB_TOKEN", "the user's")
    status, output = launch(
        tmp_path, 'print("the user\'s" in str(os.environ))', "--num_workers=2"
    )
    assert status == 0
    assert sorted(output.splitlines()[1:]) == ["[0] False", "[1] False"]


def test_preempted_worker_counts_as_a_restart(tmp_path):
    status, output = launch(
        tmp_path,
        "sys.exit(75 if run == 0 else 0)",
        "--num_workers=2",
        "--max_restarts=1",
    )
    assert status == 0
    assert "the workers saved and ended" in output


def test_usage_error_is_not_started_anew(tmp_path):
    status, output = launch(
        tmp_path, "sys.exit(2)", "--num_workers=2", "--max_restarts=5"
    )
    assert status == 2
    assert "not restarted: it failed at once" in output


def test_reader_that_goes_away_ends_the_job(tmp_path):
    program = """
write("up-0", os.getpid())
while True:
    print("line")
    time.sleep(0.05)
"""
    with launcher(tmp_path, program, "--num_workers=1") as process:
        (pid,) = wait_for_files(tmp_path, "up-0")
        process.stdout.close()
        assert process.wait(10) == 128 + signal.SIGPIPE
    assert not is_alive(pid)


def test_program_that_cannot_run_is_told(tmp_path):
    program = tmp_path / "program"
    program.write_text("neither binary nor script")
    program.chmod(0o755)
    status, output = launch(
        tmp_path, None, "--num_workers=1", command=[str(program)]
    )
    assert status == 127
    assert f"can't run {program}" in output


def test_fixed_ports_are_for_one_launcher_at_a_time(tmp_path):
    (port,) = ports.free(1)
    flags = ("--num_workers=2", f"--first_worker_port={port}")
    program = "write(f'up-{index}', 1); wait_for('end')"
    with launcher(tmp_path, program, *flags) as process:
        wait_for_files(tmp_path, "up-0", "up-1")
        other = ("--num_workers=1", f"--first_worker_port={port + 1}")
        status, output = launch(tmp_path, program, *other)
        (tmp_path / "end").touch()
        assert finish(process)[0] == 0
    assert status == 1
    assert f"error: Port {port + 1} is in use by the workers of" in output
