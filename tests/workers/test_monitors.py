"""A job of two workers prints one line per epoch and writes one run."""

import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.callbacks import event_files
from tests.workers import monitored_program

pytestmark = pytest.mark.slow


def test_one_line_and_one_run_for_all_workers(tmp_path):
    folder, alone = tmp_path / "job", tmp_path / "alone"
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", "-m", "tests.workers.monitored_program", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = re.findall(
        r"epoch (\d)/3: .* per replica, .* efficient", done.stdout
    )
    assert lines == ["1", "2", "3"]
    monitors = folder / "tensorboard"
    assert len(list(monitors.glob("events*"))) == 1
    assert len(list(monitors.glob("plugins/profile/*/*.xplane.pb"))) == 1
    assert {path.name for path in folder.iterdir()} == {
        "checkpoints",
        "devices.jsonl",
        "devices.worker1.jsonl",
        "history.jsonl",
        "run.json",
        "steps.jsonl",
        "tensorboard",
    }
    assert len(list((folder / "checkpoints").glob("*.npz"))) == 3
    assert len((folder / "history.jsonl").read_text().splitlines()) == 3
    found = event_files.values(monitors)
    for worker in range(2):
        seconds = found[f"worker_step_seconds/Worker_{worker}"]
        assert list(seconds) == [6, 12, 18] and min(seconds.values()) > 0
    keras.utils.clear_session()  # Layers are numbered as in the job.
    monitored_program.train(tf.distribute.get_strategy(), alone)
    expected = event_files.values(alone / "tensorboard")
    norms = [tag for tag in expected if tag.startswith("l2_norm/")]
    assert len(norms) == 6
    for tag in norms:
        assert list(found[tag]) == [4, 8, 12, 16]
        np.testing.assert_allclose(
            list(found[tag].values()), list(expected[tag].values()), rtol=1e-5
        )
