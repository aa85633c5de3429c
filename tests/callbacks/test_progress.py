"""The line per epoch: its text, where it is printed, and what it compares with."""

import io
import json
import math
import re
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

import kerasmgpu
from kerasmgpu.callbacks import Progress, ThroughputLogger, progress
from kerasmgpu.callbacks.progress import epoch_text
from kerasmgpu.callbacks.throughput import rate_of_one_replica
from kerasmgpu.errors import InputError

ROWS = np.ones((24, 3), "float32")


def compiled(step_seconds=0.0):
    class Sleeper(keras.layers.Layer):
        def call(self, inputs):
            slept = tf.py_function(
                lambda _: time.sleep(step_seconds) or 0.0, [inputs], "float32"
            )
            with tf.control_dependencies([slept]):
                return tf.identity(inputs)

    layers = [Sleeper()] if step_seconds else []
    model = keras.Sequential(
        [keras.Input((3,)), *layers, keras.layers.Dense(1)]
    )
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [9], [0.5, 2.0]
    )
    model.compile(keras.optimizers.SGD(schedule), "mse", jit_compile=False)
    return model


def fit(model, *callbacks, **arguments):
    data = tf.data.Dataset.from_tensor_slices((ROWS, ROWS[:, :1])).batch(4)
    arguments = {"verbose": 0, "epochs": 2, **arguments}
    return model.fit(data, callbacks=list(callbacks), **arguments)


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([{}], "no step measured yet"),
        ([{"examples_per_second": math.nan}], "no step measured yet"),
        ([{"examples_per_second": 12345.6}], "12,346 examples/s"),
        ([{"examples_per_second": 64.0}, 2], "64 examples/s (32 per replica)"),
        (
            [{"examples_per_second": 64.0, "efficiency": 0.5}],
            "64 examples/s (50 % efficient)",
        ),
        (
            [
                {
                    "examples_per_second": 3000.0,
                    "efficiency": 0.93,
                    "input_wait_share": 0.025,
                    "mfu": 0.412,
                    "learning_rate": 1e-4,
                    "memory_bytes": 12_340_000_000,
                    "seconds_left": 3725,
                },
                4,
            ],
            "3,000 examples/s (750 per replica, 93 % efficient), "
            "2 % waiting for input, 41.2 % MFU, learning rate 0.0001, "
            "12.34 GB per replica, 1:02:05 left",
        ),
    ],
)
def test_text_of_figures(arguments, expected):
    assert epoch_text(*arguments) == expected


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_the_line_follows_that_of_keras(capsys, verbose):
    with kerasmgpu.strategy(2).scope():
        model = compiled()
    history = fit(
        model,
        Progress(one_replica=100),
        ThroughputLogger(),
        verbose=verbose,
        validation_data=(ROWS, ROWS[:, :1]),
    ).history
    printed = capsys.readouterr().out
    lines = re.findall(r"^epoch \d/2: .*$", printed, re.MULTILINE)
    assert len(lines) == 2
    for epoch, rate in enumerate(history["examples_per_second"]):
        assert (
            f"{rate:,.0f} examples/s ({rate / 2:,.0f} per "
            f"replica, {rate / 200:.0%}".replace("%", " %")
            in lines[epoch]
        )
        # Keras has printed them.
        is_shown = (
            rf"epoch {epoch + 1}/2: loss [\d.,e-]+, validation loss [\d.]"
        )
        assert bool(re.match(is_shown, lines[epoch])) == (verbose == 0)
    # Six steps per epoch: the schedule changes after the ninth.
    assert re.search(r"learning rate 0\.5, \d:\d\d left$", lines[0])
    assert lines[1].endswith("learning rate 2")
    order = re.findall(r"Epoch \d/2|val_loss: |epoch \d/2: ", printed)
    if verbose:
        assert [each for n, each in enumerate(order) if order[:n][-1:] != [each]] == [
            "Epoch 1/2", "val_loss: ", "epoch 1/2: ",
            "Epoch 2/2", "val_loss: ", "epoch 2/2: ",
        ]  # fmt: skip
    else:
        assert order == ["epoch 1/2: ", "epoch 2/2: "]


def test_time_left_is_that_of_the_epochs_left(capsys):
    def wait(epoch, logs):
        time.sleep(0.5)

    validation = keras.callbacks.LambdaCallback(
        on_test_begin=lambda _: wait(0, 0)
    )
    fit(
        compiled(step_seconds=0.1),
        validation,
        Progress(),
        epochs=5,
        steps_per_epoch=3,
        validation_data=(ROWS, ROWS[:, :1]),
    )
    left = re.findall(r"0:(\d\d) left", capsys.readouterr().out)
    # An epoch takes three tenths, and its validation a half: never less.
    assert [int(n) >= at_least for n, at_least in zip(left, (3, 2, 1, 0))] == [
        True
    ] * 4
    assert len(left) == 4


class Terminal(Console):
    """A terminal that keeps what is written to it."""

    def __init__(self):
        self.text = io.StringIO()
        super().__init__(file=self.text, force_terminal=True, width=160)


@pytest.fixture
def terminal(monkeypatch):
    made = Terminal()
    monkeypatch.setattr(progress, "Console", lambda: made)
    return made


def threads(seconds=0.0):
    """rich's threads that still run after up to `seconds`: it joins none."""
    end = time.monotonic() + seconds
    while found := _threads():
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return found


def _threads():
    return [
        each
        for each in threading.enumerate()
        if type(each).__module__.startswith("rich")
    ]


def test_a_terminal_shows_the_steps_while_they_run(terminal):
    fit(compiled(step_seconds=0.3), Progress(), epochs=1)
    shown = terminal.text.getvalue()
    counts = {int(n) for n in re.findall(r"(\d)/6 ", shown)}
    assert len(counts) >= 3
    assert re.search(
        r"[1-5]/6 .*examples/s.*learning rate 0\.5, 0:0\d left", shown
    )
    assert not threads(seconds=10)


@pytest.mark.parametrize("verbose, live", [(0, True), (1, False), (2, True)])
def test_keras_s_own_bar_is_left_alone(terminal, verbose, live):
    shown = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            shown.append(terminal.text.getvalue())

    fit(compiled(), Look(), Progress(), epochs=1, verbose=verbose)
    assert bool(shown[0]) == live


@pytest.mark.parametrize("hook", ["on_epoch_begin", "on_epoch_end"])
def test_an_interrupted_fit_leaves_no_thread_and_no_line(terminal, hook):
    class Interrupt(keras.callbacks.Callback):
        pass

    def interrupt(self, epoch, logs=None):
        shows.append(bool(threads()))
        raise KeyboardInterrupt

    shows = []
    setattr(Interrupt, hook, interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(compiled(), Progress(), Interrupt(), verbose=2)
    assert shows == [True]
    assert not threads(seconds=10)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", terminal.text.getvalue())
    assert ("epoch 1/2: " in shown) == (hook == "on_epoch_end")


def test_one_replica_is_read_from_its_run(tmp_path):
    path = tmp_path / "throughput.jsonl"
    rates = fit(compiled(), ThroughputLogger(path), epochs=3).history
    expected = np.median(rates["examples_per_second"])
    assert rate_of_one_replica(path) == expected
    assert rate_of_one_replica(str(tmp_path)) == expected
    folder = tmp_path / "recipe"
    folder.mkdir()
    record = {"epoch": 1, "examples_per_second": 8.0}
    record["examples_per_second_per_replica"] = 8.0
    # A recipe's first epoch may have no rate.
    lines = [
        json.dumps({**record, "examples_per_second": None}),
        json.dumps(record),
        '{"epoch": 2, "examp',  # The run was killed as it wrote.
    ]
    (folder / "history.jsonl").write_text("\n".join(lines))
    assert rate_of_one_replica(folder) == 8


@pytest.mark.parametrize(
    "content, problem",
    [
        ('{"examples_per_second": 8, "replicas": 2}', "a run on 2 replicas"),
        (
            '{"examples_per_second": 8, "examples_per_second_per_replica": 2}',
            "a run on 4 replicas",
        ),
        ('{"examples_per_second": 8}', "an unknown number of replicas"),
        ('{"loss": 1}', "no epoch with examples_per_second"),
        ("", "no epoch with examples_per_second"),
        ("[1]", "no JSON object in line 1"),
        ("no JSON", "can't be read as JSON lines"),
    ],
)
def test_a_run_that_is_none_of_one_replica_is_refused(
    tmp_path, content, problem
):
    path = tmp_path / "throughput.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=problem):
        Progress(path)


@pytest.mark.parametrize(
    "given, problem",
    [
        (0, "one_replica must be"),
        ("nowhere", "No such file"),
        (".", "a folder without throughput.jsonl or history.jsonl"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path, monkeypatch, given, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=problem):
        Progress(given)


@pytest.mark.parametrize(
    "epochs, seconds, reported",
    [
        (5, 0.01, [1, 2, 3, 4, 5]),
        # The first, the last, and one every ten seconds.
        (4000, 0.001, [1, 4000]),
        (100, 0.25, [1, 41, 81, 100]),
        (22, 60.0, [*range(1, 23)]),
    ],
)
def test_epochs_get_a_line_by_time(epochs, seconds, reported):
    callback = Progress()
    callback.params = {"epochs": epochs}
    callback._pace = progress._Pace(None)
    assert reported == [
        epoch
        for epoch in range(1, epochs + 1)
        if callback._is_due(epoch * seconds, epochs - epoch)
    ]


def test_logs_come_first(capsys):
    labels = {"val_loss": "validation MSE", "loss": "MSE", "other": "other"}
    fit(compiled(), Progress(logs=labels), epochs=1)
    assert re.match(
        r"epoch 1/1: MSE [\d.,]+, .*examples/s", capsys.readouterr().out
    )


def test_all_logs_are_shown_with_those_of_validation(capsys):
    model = compiled()
    model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    fit(model, Progress(), validation_data=(ROWS, ROWS[:, :1]))
    line = capsys.readouterr().out.splitlines()[-1]
    names = re.findall(r"([a-z ]+) [\d.e-]+,", line.partition(": ")[2])
    assert [name.strip() for name in names[:4]] == [
        "loss",
        "mae",
        "validation loss",
        "validation mae",
    ]


def test_a_resume_within_an_epoch_counts_no_pause(tmp_path, capsys):
    """The steps before the resume count as those after it; the pause doesn't."""

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2 and self.model.optimizer.iterations.numpy() > 6:
                raise KeyboardInterrupt

    def callbacks(*others):
        return [
            Progress(),
            *others,
            kerasmgpu.callbacks.Checkpoint(tmp_path, every_steps=1),
        ]

    with pytest.raises(KeyboardInterrupt):
        fit(compiled(0.05), *callbacks(End()), epochs=3)
    time.sleep(3)
    capsys.readouterr()
    fit(compiled(0.05), *callbacks(), epochs=3)
    lines = re.findall(r"epoch 2/3.* (\d+):(\d+) left", capsys.readouterr().out)
    # An epoch has six steps.
    ((minutes, seconds),) = lines
    assert (int(minutes), int(seconds) < 3) == (0, True)
