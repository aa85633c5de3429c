"""The micro-batches that "auto" begins with."""

import keras
import numpy as np
import pytest

import kerasmgpu
from kerasmgpu.memory import memory_advice
from tests.devices import device_names

ROWS = 2048


@pytest.mark.parametrize(
    "limit, least, most",
    [(None, 1, 1), (72 << 20, 2, 8)],
)
def test_auto_begins_with_what_is_predicted_to_fit(
    limit, least, most, monkeypatch, caplog
):
    monkeypatch.setattr(memory_advice, "device_bytes", lambda strategy: limit)
    strategy = kerasmgpu.MirroredStrategy(device_names(2), micro_batches="auto")
    with strategy.scope():
        layers = [keras.layers.Dense(512, "tanh") for _ in range(12)]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile("sgd", "mse")
    x = np.ones((ROWS, 64), "float32")
    model.fit(x, np.ones((ROWS, 512), "float32"), batch_size=ROWS, verbose=0)
    (program,) = model.train_function.programs
    assert least <= program.replicas.mesh.micro_batches <= most
    can_help = "can't help on a CPU" not in caplog.text
    assert can_help == (limit is not None)
