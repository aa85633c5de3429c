"""Signals at any moment of a program: saved once, ended, and resumed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import keras
import pytest

from kerasmgpu.callbacks.checkpoints import stopping
from tests.callbacks.checkpoints import runs

EPOCHS = 2


class Terminated(BaseException):
    """Stands for the end of a process by SIGTERM's default effect."""


def terminate(*_):
    raise Terminated


@pytest.fixture(autouse=True)
def usual_handlers():
    """Handlers as in a program of its own; pytest's own are restored."""
    before = [
        (signal.SIGTERM, signal.signal(signal.SIGTERM, terminate)),
        (
            signal.SIGINT,
            signal.signal(signal.SIGINT, signal.default_int_handler),
        ),
    ]
    hook = sys.excepthook
    yield
    for number, handler in before:
        signal.signal(number, handler)
    sys.excepthook = hook


def program(folder, callbacks=()):
    """Two `fit`s of a model, each with a folder; returns the model."""
    model = runs.build_eager()
    for name in ("first", "second"):
        runs.train(
            model,
            runs.arrays(),
            folder / name,
            epochs=EPOCHS,
            validation_data=runs.HELD_OUT,
            callbacks=list(callbacks),
        )
    return model


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


class Send(keras.callbacks.Callback):
    """Sends a signal in one of its hooks, the first time."""

    def __init__(self, hook, number):
        super().__init__()

        def call(*_, **__):
            if not self.is_sent:
                self.is_sent = True
                send(number)

        self.is_sent = False
        setattr(self, hook, call)


HOOKS = [
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_end",
    "on_test_batch_end",
    "on_epoch_end",
    "on_train_end",
]
SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "hook, number",
    [
        pytest.param(
            hook,
            number,
            marks=() if (first + second) % 2 == 0 else pytest.mark.nightly,
        )
        for first, hook in enumerate(HOOKS)
        for second, number in enumerate(SIGNALS)
    ],
)
def test_in_each_hook_it_saves_and_ends(tmp_path, hook, number):
    expected = program(tmp_path / "whole")
    with pytest.raises((SystemExit, KeyboardInterrupt)) as raised:
        program(tmp_path / "ended", [Send(hook, number)])
    if number == signal.SIGTERM:
        assert raised.value.code == 75
    else:
        assert raised.type is KeyboardInterrupt
    assert signal.getsignal(signal.SIGTERM) is terminate
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not (tmp_path / "ended" / "second").exists()
    resumed = program(tmp_path / "ended")
    for array, same in zip(runs.state(resumed), runs.state(expected)):
        assert (array == same).all()


@pytest.mark.slow
def test_at_random_moments_it_ends_and_resumes_to_the_same(tmp_path):
    began = time.monotonic()
    expected = runs.state(program(tmp_path / "whole"))
    seconds = time.monotonic() - began
    draw = random.Random(5)
    ends = []
    for trial in range(8):
        folder = tmp_path / str(trial)
        # A handler that raises can end TensorFlow's tracing, before and between
        # the `fit`s, by an abort.
        outside = []
        signal.signal(signal.SIGTERM, lambda *_, seen=outside: seen.append(1))
        timer = threading.Timer(draw.uniform(0, seconds), send)
        timer.start()
        try:
            program(folder)
            timer.join()
            ends.append("outside")
        except SystemExit as error:
            ends.append(error.code)
        timer.join()
        # Nothing half-written, and no more than one ending.
        assert not list(folder.glob("*/.tmp*"))
        assert outside == [1] * (ends[-1] == "outside")
        for array, same in zip(runs.state(program(folder)), expected):
            assert (array == same).all()
    assert set(ends) <= {"outside", 75} and 75 in ends


def test_a_failed_save_is_what_ends_the_run(tmp_path, monkeypatch):
    from kerasmgpu.callbacks.checkpoints import file_format
    from kerasmgpu.errors import InputError

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_format, "write", full)
    with pytest.raises(InputError, match="No space left"):
        program(tmp_path, [Send("on_train_batch_end", signal.SIGTERM)])


def test_an_error_in_fit_leaves_the_signal_to_the_program(tmp_path):
    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            send()
            raise ValueError

    with pytest.raises(Terminated):
        program(tmp_path, [Fail()])


@pytest.mark.slow
def test_a_programs_own_handler_of_ctrl_c_stays(tmp_path):
    heard = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    program(tmp_path, [Send("on_train_batch_end", signal.SIGINT)])
    assert heard == [signal.SIGINT]


def test_a_second_ctrl_c_in_a_notebook_raises_at_once(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    requests = stopping.Stopping()
    requests.start()
    try:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
            time.sleep(1)
    finally:
        requests._forget()
        requests.stop()


_SCRIPT = """
import os, pathlib, signal, sys
import tensorflow as tf
from kerasmgpu.callbacks.checkpoints import stopping
requests = stopping.Stopping()
requests.start()
for _ in range(int(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGINT)
number = requests.agreed(tf.distribute.get_strategy())
requests.end(number, pathlib.Path("run1"))
"""


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_a_script_without_a_traceback(times):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(times)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr
    is_saved = "saved in run1 and ended by Ctrl-C; the same command resumes it"
    assert (is_saved in done.stderr) == (times == 1)
