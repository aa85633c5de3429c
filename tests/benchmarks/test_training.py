"""One run with Keras, in this process."""

import pytest

from benchmarks.figures import FIGURES
from benchmarks.training import train
from kerasmgpu import callbacks


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "contender, fits",
    [
        ("kerasmgpu", 0),
        ("kerasmgpu_auto", 0),
        ("kerasmgpu_logged", 2),
        ("kerasmgpu_watched", 2),
    ],
)
def test_the_logger_looks_on_where_it_is_asked_for(
    monkeypatch, contender, fits
):
    seen = []

    class Spy(callbacks.ThroughputLogger):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            seen.append((epoch, "examples_per_second" in logs))

    monkeypatch.setattr(callbacks, "ThroughputLogger", Spy)
    result = train(
        {
            "workload": "convnet",
            "contender": contender,
            "replicas": 2,
            "global_batch_size": 4,
            "steps": 2,
            # The conftest has made 8, which must not be made again.
            "virtual_devices": False,
        }
    )
    assert all(result[name] > 0 for name in FIGURES)
    # The first step by itself; then an epoch that warms up and three more.
    epochs = [(0, True), (0, True), (1, True), (2, True), (3, True)]
    assert seen == (epochs if fits else [])
