"""What TensorFlow says while it starts is left out, and nothing else is."""

import os
import subprocess
import sys

import pytest

CUDA = (
    "E0000 00:00:1795311183.335588   24936 cuda_platform.cc:52] failed call to "
    "cuInit: INTERNAL: CUDA error"
)
NOISE = [
    "WARNING: All log messages before absl::InitializeLog() is called are "
    "written to STDERR",
    "I0000 00:00:1795311174.482078   24936 cudart_stub.cc:31] Could not find "
    "cuda drivers on your machine, GPU will not be used.",
    CUDA,
    "2026-01-01 10:11:12.131415: I tensorflow/core/util/port.cc:153] oneDNN "
    "custom operations are on.",
    "E0000 00:00:1795704284.488459 5312 text_format.cc:378] Error parsing "
    "text-format tensorflow.XlaSerializedCacheEntry: 2:1: Expected identifier",
]
KEPT = [
    "error: --epochs must be at least 1. Received: 0",
    "E0000 00:00:1795311183.335588   24936 gpu_device.cc:52] Out of memory",
    "2026-01-01 10:11:12.131415: E tensorflow/core/kernels/a.cc:153] A fault.",
    "I am a line of the user's, with a file.cc:31] in it",
    "It is now 10:11",
]
START = "import os, sys; from kerasmgpu import stderr_filter; stderr_filter.start();"


def stderr_of(code, expected_status=0):
    done = subprocess.run(
        [sys.executable, "-c", START + code], capture_output=True, text=True
    )
    assert done.returncode == expected_status
    return done.stderr


def test_noise_goes_and_all_else_stays_in_its_order():
    lines = [line for pair in zip(NOISE, KEPT) for line in pair]
    lines += KEPT[len(NOISE) :]
    text = "".join(f"{line}\n" for line in lines)
    assert stderr_of(f"os.write(2, {text.encode()!r})").splitlines() == KEPT


def test_a_line_that_comes_in_pieces_is_one_line():
    halves = [NOISE[1][:30], NOISE[1][30:] + "\nwell"]
    code = "import time\nfor half in %r:\n os.write(2, half.encode())\n"
    assert stderr_of("\n" + code % halves + " time.sleep(0.1)") == "well"


def test_last_words_are_passed_on():
    said = stderr_of("raise ValueError('last words')", expected_status=1)
    assert said.endswith("ValueError: last words\n")
    said = stderr_of("print('first', file=sys.stderr); os.abort()", -6)
    assert said.startswith("first\n")
    # It may have become a line of TensorFlow's.
    assert stderr_of("os.write(2, b'Exit 3')") == "Exit 3"


def test_a_child_that_lives_on_does_not_keep_the_command():
    code = (
        "import subprocess; subprocess.Popen(['sleep', '30'], "
        "stdout=subprocess.DEVNULL); print('done', file=sys.stderr)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", START + code], stderr=subprocess.PIPE
    ) as command:
        assert command.stderr.readline() == b"done\n"
        assert command.wait(timeout=10) == 0
        command.stderr.close()


def test_a_terminal_sees_what_is_not_yet_a_line():
    with subprocess.Popen(
        [sys.executable, "-c", START + "os.write(2, b'sure? '); input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as command:
        assert command.stderr.read(6) == b"sure? "
        command.communicate(b"\n")


@pytest.mark.parametrize(
    "level, kept", [(None, 0), ("2", 0), ("3", 0), ("1", 1), ("0", 1)]
)
def test_a_higher_level_is_not_louder(level, kept):
    environment = dict(os.environ)
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    code = START.replace("start()", "start_unless_asked()")
    done = subprocess.run(
        [sys.executable, "-c", code + f"os.write(2, {NOISE[0].encode()!r})"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stderr.count("absl::InitializeLog") == kept
