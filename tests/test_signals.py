"""What SIGTERM does while this process records it."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from kerasmgpu import signals


@pytest.fixture
def heard():
    """Signals that the program's own handler got."""
    found = []
    before = signal.signal(
        signal.SIGTERM, lambda number, _: found.append(number)
    )
    yield found
    signal.signal(signal.SIGTERM, before)


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def test_the_innermost_recorder_hears_and_the_handler_before_is_restored(heard):
    outer, inner = signals.Recorder(), signals.Recorder()
    with outer:
        with inner:
            send()
            assert inner.received == [signal.SIGTERM] and not outer.received
            inner.received.clear()
        send()
        assert outer.received == [signal.SIGTERM] and not heard
        outer.received.clear()
    assert not heard
    send()
    assert heard == [signal.SIGTERM]
    outer.stop()  # Once more.
    send()
    assert len(heard) == 2


def test_a_signal_that_nobody_took_goes_to_the_handler_before(heard):
    with signals.Recorder() as outer:
        with signals.Recorder():
            send()
            send()
        assert outer.received == [signal.SIGTERM]
    assert heard == [signal.SIGTERM]


def test_a_fork_has_the_handlers_before():
    with signals.Recorder():
        child = os.fork()
        if child == 0:
            send()
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_further_signals_have_another_handler(heard):
    further = []
    recorder = signals.Recorder(
        at_most=1, further=lambda number, _: further.append(number)
    )
    with recorder:
        send()
        send()
        assert recorder.received == further == [signal.SIGTERM]
        recorder.received.clear()
    send()
    assert heard == [signal.SIGTERM]


@pytest.mark.parametrize("unless_ignored", [True, False])
def test_ignored_signals_stay_ignored_on_request(unless_ignored):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.Recorder((signal.SIGHUP,), unless_ignored) as recorder:
            send(signal.SIGHUP)
            assert len(recorder.received) == (0 if unless_ignored else 1)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_install_nothing(heard):
    started = []
    recorder = signals.Recorder()
    thread = threading.Thread(target=lambda: started.append(recorder.start()))
    thread.start()
    thread.join()
    send()
    recorder.stop()
    assert started == [False] and heard == [signal.SIGTERM]


@pytest.mark.parametrize(
    "called, status",
    [("exit_on_sigterm", 143), ("end_on_sigterm", -signal.SIGTERM)],
)
def test_a_process_ends(called, status):
    program = (
        "import os, signal; from kerasmgpu import signals; "
        f"signals.{called}(); os.kill(os.getpid(), signal.SIGTERM)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == status
