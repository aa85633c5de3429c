"""A job of two workers prints one line per epoch and writes one run."""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.callbacks import event_files
from tests.workers import monitored_program

pytestmark = pytest.mark.slow


@pytest.mark.job_case(2, 1, "monitored")
def test_one_line_and_one_run_for_all_workers(job, tmp_path):
    folder, alone = job.files, tmp_path / "alone"
    said = "\n".join(job.lines)
    lines = re.findall(r"epoch (\d)/3: .* per replica, .* efficient", said)
    assert lines == ["1", "2", "3"]
    monitors = folder / "tensorboard"
    assert len(list(monitors.glob("events*"))) == 1
    assert len(list(monitors.glob("plugins/profile/*/*.xplane.pb"))) == 1
    names = {path.name for path in folder.iterdir()}
    # A busy machine can stop for so long that a step counts as hanging.
    assert {name for name in names if not name.startswith("hangs")} == {
        "checkpoints",
        "devices.jsonl",
        "devices.worker1.jsonl",
        "history.jsonl",
        "run.json",
        "steps.jsonl",
        "tensorboard",
        "times.jsonl",
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


@pytest.mark.nightly
@pytest.mark.job_case(2, 1, "devices")
def test_each_worker_writes_a_file_and_the_history_is_of_all(job):
    own, other = (
        [json.loads(line) for line in (job.files / name).open()]
        for name in ("devices.jsonl", "devices.worker1.jsonl")
    )
    assert {record["worker"] for record in own} == {0}
    assert {record["worker"] for record in other} == {1}
    first, second = job.workers
    assert first == second
    most = max(record["memory_bytes"] for record in own)
    assert first["host_memory_bytes_max"][-1] > most + 200_000_000
