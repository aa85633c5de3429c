import json

import numpy as np
import pytest

from kerasmgpu.callbacks.checkpoints import plain_data


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0.1,
        float("-inf"),
        10**30,
        "é",
        [1, [2.5, "x"]],
        (1, (2, None)),
        {"loss": [1.0, 2.0], 3: {"tuple": (1,)}, (1, 2): []},
        np.float32(0.1),
    ],
)
def test_plain_data_comes_back(value):
    arrays = []
    text = json.dumps(plain_data.encode(value, arrays))
    back = plain_data.decode(json.loads(text), arrays)
    assert back == value
    assert type(back) is type(value)


def test_arrays_are_copied():
    array, arrays = np.arange(3, dtype="int8"), []
    data = plain_data.encode({"best_weights": [array]}, arrays)
    array[:] = 9
    (back,) = plain_data.decode(data, arrays)["best_weights"]
    np.testing.assert_array_equal(back, np.array([0, 1, 2], "int8"))
    assert back.dtype == np.int8


def test_anything_else_is_refused():
    circle = []
    circle.append(circle)
    for value in (print, object(), {1: {2}}, circle, np.array(["text"])):
        with pytest.raises(plain_data.NotPlainError):
            plain_data.encode(value, [])
