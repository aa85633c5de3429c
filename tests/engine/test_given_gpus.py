"""A worker that doesn't see its GPUs says so, and trains on no CPU instead."""

import pytest
import tensorflow as tf

from kerasmgpu.engine import given_gpus
from kerasmgpu.errors import InputError


@pytest.mark.parametrize(
    ("chosen", "starts", "seen", "message"),
    [
        ("3", True, 0, "CUDA_VISIBLE_DEVICES=3, of which TensorFlow sees 0"),
        (
            "2,3",
            True,
            1,
            "CUDA_VISIBLE_DEVICES=2,3, of which TensorFlow sees 1",
        ),
        ("2,3", True, 2, ""),
        ("-1", True, 0, ""),
        ("3", False, 0, ""),  # Not of the launcher: a user's own business.
    ],
)
def test_gpus_of_the_launcher(monkeypatch, chosen, starts, seen, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    if starts:
        monkeypatch.setenv("KERASMGPU_RESTART", "1")
    gpus = [f"GPU:{number}" for number in range(seen)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: gpus)
    if not message:
        given_gpus.require()
        return
    with pytest.raises(InputError) as raised:
        given_gpus.require()
    assert message in str(raised.value)
