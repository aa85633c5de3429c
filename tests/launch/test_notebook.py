"""A function in several processes: what comes back, errors, interrupts."""

import functools
import linecache
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

import kerasmgpu
from kerasmgpu import WorkerError, notebook_launch
from kerasmgpu.job.cluster import Worker, from_environment
from tests.launch.launching import is_alive, wait_until

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "SIGCONT"), reason="needs POSIX signals"
)

CELL = """
SCALE = 10

class Point:
    def __init__(self, x):
        self.x = x

def scaled(x):
    return SCALE * x

def cell(point):
    import inspect
    return Point(scaled(point.x)), inspect.getsource(scaled)

def failing():
    scaled(1) / 0
"""


@pytest.fixture(scope="module")
def cell():
    """What a notebook's cell defines, with its source as IPython keeps it."""
    name = "/tmp/ipykernel_1/2.py"
    lines = CELL.splitlines(keepends=True)
    linecache.cache[name] = (len(CELL), None, lines, name)
    names = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), names)
    return names


def index():
    return from_environment().index


def place(*args):
    print("here I am")
    return index(), os.getpid(), args


def test_results_come_back_by_worker_and_lines_with_their_numbers(capsys):
    results = notebook_launch(place, (1, "b"), num_workers=3)
    assert [number for number, _, _ in results] == [0, 1, 2]
    pids = {pid for _, pid, _ in results}
    assert len(pids) == 3 and os.getpid() not in pids
    assert [args for _, _, args in results] == [(1, "b")] * 3
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == [f"[{number}] here I am" for number in range(3)]


def test_one_worker_is_a_job_too():
    assert notebook_launch(os.getcwd, num_workers=1) == [os.getcwd()]


def test_what_a_cell_defines_goes_along_with_its_source(cell):
    ((point, source),) = notebook_launch(
        cell["cell"], (cell["Point"](4),), num_workers=1
    )
    assert isinstance(point, cell["Point"]) and point.x == 40
    assert source == "def scaled(x):\n    return SCALE * x\n"


def test_a_module_is_found_where_it_is_here(tmp_path, monkeypatch):
    (tmp_path / "of_the_user.py").write_text("def four():\n    return 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    import of_the_user

    assert notebook_launch(of_the_user.four, num_workers=1) == [4]


def test_large_results_come_back():
    (data,) = notebook_launch(bytes, (5_000_000,), num_workers=1)
    assert len(data) == 5_000_000


def test_an_error_is_one_report_with_its_traceback(cell, capsys):
    with pytest.raises(WorkerError) as caught:
        notebook_launch(cell["failing"], num_workers=1)
    assert str(caught.value) == (
        "worker 0 failed first:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/tmp/ipykernel_1/2.py", line 16, in failing\n'
        "    scaled(1) / 0\n"
        + ("    ~~~~~~~~~~^~~\n" if sys.version_info >= (3, 11) else "")
        + "ZeroDivisionError: division by zero"
    )
    assert caught.value._render_traceback_() == [f"WorkerError: {caught.value}"]
    printed = capsys.readouterr()
    assert printed.out == "[0] ZeroDivisionError: division by zero\n"
    assert printed.err == ""


def fail_first(folder):
    if index() == 1:
        (folder / "dying").touch()
        raise KeyError("the cause")
    wait_until(lambda: (folder / "dying").exists())
    time.sleep(0.2)
    raise OSError("its consequence")


def test_the_worker_that_failed_first_is_the_one_shown(tmp_path):
    with pytest.raises(WorkerError, match="worker 1 failed first") as caught:
        notebook_launch(fail_first, (tmp_path,), num_workers=2)
    assert "KeyError: 'the cause'" in str(caught.value)
    assert "consequence" not in str(caught.value)


def die():
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_a_signal_ends_is_told_with_its_last_lines():
    with pytest.raises(WorkerError, match="killed by SIGKILL(.|\n)*last words"):
        notebook_launch(die, num_workers=1)


def test_a_function_that_never_returns_gives_no_results():
    with pytest.raises(WorkerError, match="ended before the function returned"):
        notebook_launch(sys.exit, num_workers=2)


def fail_once(folder):
    if os.environ["KERASMGPU_RESTART"] == "0":
        raise ValueError("not yet")
    return "done"


@pytest.mark.slow
def test_a_job_may_be_started_anew(tmp_path, capsys):
    results = notebook_launch(
        fail_once, (tmp_path,), num_workers=2, max_restarts=1
    )
    assert results == ["done", "done"]
    errors = capsys.readouterr().err
    assert "  | ValueError: not yet" in errors
    assert "restart 1 of 1" in errors


def wait_long(folder):
    path = folder / f"worker-{index()}"
    path.with_suffix(".part").write_text(str(os.getpid()))
    path.with_suffix(".part").rename(path)
    time.sleep(60)


def send(number, folder):
    """Sends this process a signal once two workers are there."""
    paths = [folder / f"worker-{i}" for i in range(2)]
    wait_until(lambda: all(path.exists() for path in paths), seconds=30)
    os.kill(os.getpid(), number)


def interrupted(folder, number):
    sender = threading.Thread(target=send, args=(number, folder))
    sender.start()
    try:
        notebook_launch(wait_long, (folder,), num_workers=2)
    finally:
        sender.join()
        pids = [int(path.read_text()) for path in folder.glob("worker-?")]
        assert len(pids) == 2 and not any(map(is_alive, pids))


def test_an_interrupt_ends_all_workers(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path, signal.SIGINT)


def test_another_signal_does_here_what_it_would_have_done(
    tmp_path, monkeypatch
):
    received = []
    before = signal.signal(
        signal.SIGTERM, lambda number, _: received.append(number)
    )
    try:
        with pytest.raises(WorkerError, match="ended by SIGTERM"):
            interrupted(tmp_path, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM]


def return_a_lock():
    return threading.Lock()


def test_what_cannot_be_sent_is_told_in_one_line():
    with pytest.raises(kerasmgpu.InputError) as caught:
        notebook_launch(print, (threading.Lock(),), num_workers=1)
    assert "cannot pickle '_thread.lock' object" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(WorkerError, match=r"returned \(lock\) can't be sent"):
        notebook_launch(return_a_lock, num_workers=1)


@pytest.mark.parametrize(
    "function, keywords, words",
    [
        ("train", {}, "takes a function. Received: 'train'"),
        (print, {"args": 3}, r"args is a tuple .* Received: args=3"),
        (print, {"hosts": "a,b"}, "has no 'hosts'.*python -m kerasmgpu.launch"),
        (print, {"num_workers": 0}, "num_workers=0"),
        (print, {"timeout_seconds": -1}, "timeout_seconds=-1"),
    ],
)
def test_bad_input_is_one_line(function, keywords, words, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(kerasmgpu.InputError, match=words) as caught:
        notebook_launch(function, **{"num_workers": 1, **keywords})
    assert "\n" not in str(caught.value)


def test_one_worker_on_the_cpu_is_told(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert notebook_launch(pow, (2, 3)) == [8]
    assert "so there is one worker, on the CPU" in capsys.readouterr().err


def test_a_worker_starts_no_workers(monkeypatch):
    worker = Worker(["a:1", "b:1"], 1)
    monkeypatch.setenv("TF_CONFIG", worker.tf_config())
    with pytest.raises(kerasmgpu.InputError, match="is a worker of a job"):
        notebook_launch(print, num_workers=2)


def test_only_the_main_thread_starts_workers():
    caught = []

    def start():
        try:
            notebook_launch(print, num_workers=1)
        except kerasmgpu.InputError as error:
            caught.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in caught[0]


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folders = notebook_launch(
        functools.partial(os.listdir, tmp_path), num_workers=1
    )
    assert len(folders[0]) == 2  # The call's, and the worker's token.
    assert list(pathlib.Path(tmp_path).iterdir()) == []
