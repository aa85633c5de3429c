"""The polynomial ends where it must, from its keywords and as a command."""

import json

import keras
import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import polynomial


def weights(result):
    return [
        result.figures[name] for name in ("w_square", "w_linear", "w_constant")
    ]


@pytest.mark.slow
def test_two_devices_reach_the_published_weights(tmp_path, capsys):
    result = polynomial.run(num_replicas=2, output_dir=str(tmp_path))
    np.testing.assert_allclose(weights(result), [5, 0, 3], atol=1e-2)
    assert (result.steps, result.global_batch_size) == (1000, 100)
    assert result.devices == ["CPU:0", "CPU:1"]
    assert "w of x²" in capsys.readouterr().out
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["figures"] == result.figures
    model = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        model.predict(np.array([[2.0]]), verbose=0), [[23]], rtol=1e-2
    )


@pytest.mark.slow
def test_uneven_shares_give_the_weights_of_one_device():
    # 10 rows on 3 devices: 4, 3 and 3.
    short = dict(steps=20, steps_per_epoch=10, global_batch_size=10)
    one, three = (
        polynomial.run(num_replicas=count, **short) for count in (1, 3)
    )
    np.testing.assert_allclose(weights(three), weights(one), rtol=1e-4)


@pytest.mark.slow
def test_a_file_of_any_length(tmp_path):
    path = tmp_path / "pairs.csv"
    # 37 lines, less than a batch: every step has them all.
    lines = [f"{x},{2 * x * x - x + 1}" for x in np.linspace(-2, 2, 37)]
    path.write_text("\n".join(["x,y", *lines, ""]))
    result = polynomial.run(num_replicas=2, data_path=str(path), steps=500)
    np.testing.assert_allclose(weights(result), [2, -1, 1], atol=1e-2)
    assert result.data == f"37 samples of {path}"


def test_a_file_in_a_store(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/pairs.csv", b"1,2\n2,4\n3,6\n")
    url = "memory://pairs.csv"
    result = polynomial.run(num_replicas=2, data_path=url, steps=20)
    assert result.data == f"3 samples of {url}"
    with pytest.raises(InputError, match="data_path must be a file"):
        polynomial.run(data_path="memory://none.csv")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "has no samples"),
        ("x,y\n", "has no samples"),
        ("1,2\n3\n", "line 2: expected two numbers, x,y. Received: 3$"),
        ("1,2\n3,four\n", "line 2: .* Received: 3,four$"),
        ("x,y\nx,y\n", "line 2: .* Received: x,y$"),
        ("1,nan\n", "line 1: .* Received: 1,nan$"),
        ("1,2,3\n", "line 1: .* Received: 1,2,3$"),
        ("1,\xff\n", "not a CSV file"),
    ],
)
def test_malformed_files_name_the_line(tmp_path, text, message):
    path = tmp_path / "pairs.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message) as raised:
        polynomial.run(data_path=str(path))
    assert str(path) in str(raised.value)
