"""Of the workers of a machine one compiles, and nothing waits for ever."""

import os
import sys
import time

import numpy as np
import pytest

from kerasmgpu.engine import xla_machine, xla_process
from kerasmgpu.engine.xla_machine import Awaited, Compiler
from kerasmgpu.partitioner.lowering import xla_first_run
from tests.compile import programs
from tests.engine.test_xla_cache import compilations
from tests.launch import launching

FUNCTION = "kerasmgpu_compiled_1f"
HOST = "/device:CPU:0"


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Folders of two living processes, and the `XlaProcess` of the second."""
    monkeypatch.setattr(xla_process.exit_waits, "add", lambda wait: None)
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir(mode=0o700)
    process = xla_process.XlaProcess(second)
    with os.fdopen(xla_process.locked(first)) as lock:
        yield first, lock, process
    os.close(process._lock)


def waited_for(queue, seconds=10.0):
    """Whether a queue is released in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if xla_first_run.is_released(queue, HOST):
            return True
        time.sleep(0.02)
    return False


def test_all_workers_know_who_compiles_what():
    """An all-gather of one's own row, thrice."""
    own = Compiler("/folder", "key", {FUNCTION: 2})
    found = xla_machine.exchange(own, lambda row: np.tile(row, (3, 1)))
    assert found == [own] * 3


def test_a_worker_waits_for_the_first_one_of_its_machine(folders):
    here, _, process = folders
    own = Compiler(str(process.folder), "key", {"f": 1, "g": 0, "h": 2})
    elsewhere = Compiler("/no/folder", "key", own.levels)
    other_key = Compiler(str(here), "other", own.levels)
    none = Compiler("", "key", own.levels)
    first = Compiler(str(here), "key", {"f": 1, "g": 1, "i": 0})
    # It reaches `g` only behind level 0, and never compiles `h`.
    expected = first._replace(levels={"f": 1})
    for before in ([], [elsewhere], [other_key], [none]):
        workers = [*before, first, own]
        assert xla_machine.awaited(own, workers) == expected
        assert xla_machine.awaited(own, [*before, own, first]) is None
    assert xla_machine.awaited(none, [first, none]) is None
    os.chmod(here, 0o777)
    assert xla_machine.awaited(own, [first, own]) is None


def test_a_program_of_the_first_worker_is_taken(folders):
    here, _, process = folders
    compiler = Compiler(str(here), "key", {FUNCTION: 0})
    process._waiting = {FUNCTION}
    queue = Awaited(compiler, process, HOST).queues[FUNCTION]
    (here / "other.pb").write_text("kerasmgpu_compiled_2e")
    assert not waited_for(queue, 0.5)
    (here / "new.pb.part").write_text(FUNCTION)
    (here / "new.pb.part").rename(here / "new.pb")
    assert waited_for(queue)
    assert (process.folder / "new.pb").read_text() == FUNCTION
    assert not (process.folder / "other.pb").exists()
    assert FUNCTION in process.done and not process._waiting
    assert process.keep_now() == 0  # Compiled by this process.


def test_a_dead_first_worker_holds_nobody_up(folders, caplog):
    here, lock, process = folders
    compiler = Compiler(str(here), "key", {FUNCTION: 0})
    queue = Awaited(compiler, process, HOST).queues[FUNCTION]
    assert not waited_for(queue, 0.5)
    lock.close()
    assert waited_for(queue)
    assert "compiles 1 clusters with XLA itself" in caplog.text
    assert caplog.text.count("it has ended") == 1


def test_a_slow_first_worker_holds_nobody_up(folders, caplog):
    here, _, process = folders
    compiler = Compiler(str(here), "key", {FUNCTION: 0})
    queue = Awaited(compiler, process, HOST, seconds=1).queues[FUNCTION]
    assert not waited_for(queue, 0.5)
    assert waited_for(queue)
    assert "it has written none for 1 s" in caplog.text


@pytest.mark.slow
def test_two_workers_compile_as_many_as_there_are(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")  # The launcher's, too.
    command = [
        "env",
        f"KERASMGPU_XLA_CACHE={tmp_path / 'kept'}",
        "TF_CPP_VMODULE=device_executable_persistor=2",
        sys.executable,
        programs.__file__,
    ]
    with launching.launcher(
        tmp_path, "", "--num_workers=2", command=command
    ) as process:
        code, log = launching.finish(process, 180)
    assert code == 0, log
    compiled, loaded = compilations(log)
    assert compiled == len(list(tmp_path.glob("kept/*/*.pb")))
    assert loaded > compiled
    assert "with XLA itself" not in log
