"""TensorFlow's lines of a start and of a cancelled step aren't shown."""

import io
import os

import pytest

from kerasmgpu.launch.noise import Noise
from kerasmgpu.launch.output import Terminal, WorkerOutput

LOST = (
    "kerasmgpu: worker 0 (127.0.0.1:26501) is lost: no heartbeat for 30 s. "
    "This worker (1) can't continue."
)
AT = "0000 00:00:1795881434.175855   24761"
START = [
    "WARNING: All log messages before absl::InitializeLog() is called are "
    "written to STDERR",
    f"I{AT} cudart_stub.cc:31] Could not find cuda drivers on your machine.",
    f"I{AT} cpu_feature_guard.cc:227] This TensorFlow binary is optimized.",
    "To enable the following instructions: AVX2 FMA, in other operations, "
    "rebuild TensorFlow with the appropriate compiler flags.",
    f"E{AT} cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error",
    f"I{AT} coordination_service.h:529] /job:worker/task:1 has connected.",
    f"I{AT} grpc_server_lib.cc:467] Started server with target: grpc://a:1",
    "2026-01-01 10:11:12.131415: I tensorflow/core/util/port.cc:153] oneDNN",
]
CANCELLED = [
    f"E{AT} base_collective_executor.cc:252] BaseCollectiveExecutor::StartAbort "
    f"UNAVAILABLE: {LOST}",
    f"E{AT} ring_alg.cc:291] Aborting RingReduce with UNAVAILABLE: Collective "
    f"ops is aborted by: {LOST}",
    "The error could be from a previous operation. Restart your program to "
    "reset. [type.googleapis.com/tensorflow.DerivedStatus='']",
    f"W{AT} local_rendezvous.cc:412] Local rendezvous is aborting with status: "
    f"UNAVAILABLE: Collective ops is aborted by: {LOST}",
    "The error could be from a previous operation. Restart your program.",
    "\t [[{{node host/all_reduce}}]]",
    "\t [[replica_0/adam/AssignAddVariableOp/AddV2/_88]] [type='']",
    *[
        f"I{AT} local_rendezvous.cc:432] Local rendezvous recv item cancelled. "
        f"Key hash: {key}"
        for key in range(30)
    ],
]
KEPT = [
    "Epoch 1/2",
    f"ERROR:absl:{LOST}",
    f"E{AT} gpu_device.cc:52] Out of memory",
    f"W{AT} bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory",
    f"F{AT} tensor.cc:733] Check failed: dtype() == expected_dtype",
    f"E{AT} ring_alg.cc:291] Aborting RingReduce with INTERNAL: of the network",
    "tensorflow.python.framework.errors_impl.UnavailableError: Graph error",
    "\t [[{{node host/all_reduce}}]]",
    "The error could be from a previous operation. Restart your program",
    "I am a line of the user's, with a file.cc:31] in it",
    "",
]


def test_noise_goes_and_all_else_stays_in_its_order():
    lines = [*KEPT[:1], *START, *KEPT[1:2], *CANCELLED, *KEPT[2:], *START]
    assert Noise({}).without(lines) == KEPT
    assert Noise({"TF_CPP_MIN_LOG_LEVEL": "2"}).without(lines) == KEPT


@pytest.mark.parametrize("level", ["0", "1"])
def test_who_asks_for_it_gets_all(level):
    lines = [*START, *CANCELLED]
    assert Noise({"TF_CPP_MIN_LOG_LEVEL": level}).without(lines) == lines


def output_of(lines, log=None):
    """Returns what a worker's lines become: the terminal's text, the last ones."""
    shown = io.StringIO()
    terminal = Terminal(shown, io.StringIO(), {})
    reading, writing = os.pipe()
    output = WorkerOutput(
        0, open(reading, "rb", buffering=0), terminal, log, {}
    )
    with open(writing, "wb") as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    last = output.finish(5)
    terminal.close()
    return shown.getvalue(), last


def test_the_log_has_all_lines(tmp_path):
    lines = [*START, "text", *CANCELLED]
    text, last = output_of(lines, tmp_path / "log")
    assert (text, last) == ("[0] text\n", ["text"])
    assert (tmp_path / "log").read_text().splitlines() == lines


def test_the_reason_is_among_the_last_lines_however_many_follow():
    _, last = output_of([LOST, *map(str, range(100))])
    assert last == [LOST, *map(str, range(81, 100))]
    _, last = output_of([LOST, "one"])
    assert last == [LOST, "one"]
