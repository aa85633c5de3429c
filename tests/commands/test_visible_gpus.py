"""GPUs, asked in another process."""

import pytest

from kerasmgpu.commands import visible_gpus
from kerasmgpu.errors import InputError


@pytest.fixture
def tensorflow(tmp_path, monkeypatch):
    """Function that puts a text in the place of TensorFlow."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return (tmp_path / "tensorflow.py").write_text


def test_names_are_those_of_the_details(tensorflow):
    tensorflow("""
import types
print("a greeting")
gpus = [types.SimpleNamespace(name=f"/GPU:{i}") for i in range(2)]
details = {"/GPU:0": {"device_name": "NVIDIA A100"}, "/GPU:1": {}}
config = types.SimpleNamespace(
    experimental=types.SimpleNamespace(
        get_device_details=lambda gpu: details[gpu.name]
    ),
    list_physical_devices=lambda kind: gpus if kind == "GPU" else [],
)
""")
    assert visible_gpus.names() == ["NVIDIA A100", "/GPU:1"]


def test_a_tensorflow_that_does_not_start_is_told(tensorflow):
    tensorflow("raise ImportError('libcudart.so: no such file')")
    with pytest.raises(
        InputError, match="does not start: ImportError: libcudart.so"
    ):
        visible_gpus.names()
