"""A worker that runs out of memory: all run the step again in more parts."""

import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.nightly
def test_all_workers_run_the_step_again(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"),
            *("--", "-m", "tests.workers.out_of_memory_program"),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=400,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-3000:]
    assert "[0] WARNING:absl:kerasmgpu: train_step ran out of memory" in text
    # Twice on each worker: in the training that goes on, and the one that fails.
    # And that for each strategy.
    assert text.count("ran out of memory in one part; it goes on in 2") == 12
    assert text.count("in 2 micro-batches; it goes on in 4") == 12
    for number in range(3):
        one, other = (
            np.load(tmp_path / f"{number}-worker-{index}.npz")
            for index in (0, 1)
        )
        compare(one, other)


def compare(one, other):
    """All trainings of both workers end alike; each says why one fails."""
    for worker in (one, other):  # Each predicts by itself.
        said = worker["error 0"].item()
        assert "Predicted: " in said and "by layer: " in said
    for name in one:
        if name == "error 0":
            continue
        np.testing.assert_array_equal(one[name], other[name])
        for how in ("again", "behind", "parts"):
            found = one[name.replace("plain", how)]
            np.testing.assert_allclose(one[name], found, rtol=1e-5, atol=1e-6)
