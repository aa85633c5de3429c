"""Who takes part, and who where none are named."""

import importlib.util

import pytest

from benchmarks import contenders
from benchmarks.contenders import BY_DEFAULT, CONTENDERS


def test_all_but_the_one_that_only_we_need_take_part():
    assert set(CONTENDERS) - set(BY_DEFAULT) == {
        "jax_kept",
        "kerasmgpu_as_gpus",
        "kerasmgpu_auto",
        "kerasmgpu_logged",
        "kerasmgpu_weights",
        "kerasmgpu_watched",
    }


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_trainer_is_there(name):
    module = f"benchmarks.{CONTENDERS[name].trainer}"
    assert importlib.util.find_spec(module) is not None


def test_pytorch_is_left_out_where_torch_is_not_installed(monkeypatch):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else 1
    )
    assert contenders.left_out(["stock", "pytorch"]) == {
        "pytorch": "torch can't be imported (pip install torch)"
    }
