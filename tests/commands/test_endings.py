"""Commands end on Ctrl-C and on closed pipes without a traceback."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from kerasmgpu.commands import endings

PLAN = ["plan", "--step_seconds=0.3", "--batch_size_per_replica=64"]
PLAN += ["--parameters=25.6e6", "--replica_counts=2"]


def start(*arguments, **settings):
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize(
    "arguments",
    [
        ["kerasmgpu"],
        ["kerasmgpu", "launch", "--help"],
        ["kerasmgpu", *PLAN],
        ["kerasmgpu.plan", *PLAN[1:]],
        ["kerasmgpu", "launch", "--num_workers=2", "--", "yes"],
    ],
)
def test_nothing_is_said_of_a_closed_pipe(arguments):
    process = start(*arguments)
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(60) == 141
    assert "Error" not in said and "Traceback" not in said


def test_standard_error_may_be_closed():
    process = start("kerasmgpu", "plan", "--nonsense")
    process.stderr.close()
    assert process.wait(60) == 141


@pytest.mark.parametrize("module", ["kerasmgpu", "kerasmgpu.plan"])
@pytest.mark.parametrize("imported", ["absl", "textwrap", "json"])
def test_an_interrupt_while_it_imports_is_one_word(tmp_path, module, imported):
    (tmp_path / f"{imported}.py").write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    arguments = PLAN if module == "kerasmgpu" else PLAN[1:]
    process = start(module, *arguments, env=environment)
    out, err = process.communicate(timeout=60)
    if "interrupted" not in err:  # The command doesn't import it.
        assert (imported, err) == ("textwrap", "")
        return
    assert (out, err) == ("", "interrupted\n")
    assert process.returncode in (130, -signal.SIGINT)


def test_programs_keep_the_traceback_of_an_interrupt():
    process = start("timeit", "import kerasmgpu; raise KeyboardInterrupt")
    assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]


def broken(wrap=None):
    error = BrokenPipeError(errno.EPIPE, "Broken pipe")
    if wrap is None:
        return error
    try:
        raise wrap from error
    except BaseException as wrapped:
        return wrapped


def test_the_error_of_a_socket_is_another():
    assert not endings.is_reader_gone(broken())
    assert not endings.is_reader_gone(broken(ValueError("of a socket")))
    assert not endings.is_reader_gone(SystemExit(1))


def test_rich_has_replaced_the_pipe():
    assert endings.is_reader_gone(broken(SystemExit(1)))


def test_an_error_that_comes_from_a_closed_pipe(monkeypatch):
    monkeypatch.setattr(endings, "_is_closed", lambda descriptor: True)
    assert endings.is_reader_gone(broken(RuntimeError("in a callback")))
    assert not endings.is_reader_gone(RuntimeError("another"))
