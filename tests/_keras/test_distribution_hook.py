"""Keras's distribution module is completed, whichever package comes first.

`conftest.py` imports Keras first; `KERASMGPU_FIRST` is a process in which it
comes second.
"""

import subprocess
import sys
import threading
import types

import keras
import pytest

from kerasmgpu import _keras_hook

FOLLOWER = "kerasmgpu.strategies.distributions"

KERASMGPU_FIRST = """
import sys, types
import kerasmgpu
assert not {"keras", "tensorflow"} & set(sys.modules)
import keras
from keras.src.backend.common.global_state import set_global_attribute
from keras.utils import clear_session
import tensorflow as tf
from kerasmgpu.engine import context

assert "kerasmgpu._keras" not in sys.modules
assert keras.distribution.list_devices("cpu") == ["cpu:0"]
keras.distribution.initialize()
assert not context.has_started()
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 3
)
assert keras.distribution.list_devices() == ["cpu:0", "cpu:1", "cpu:2"]
assert not context.has_started()

keras.distribution.set_distribution(None)
assert "kerasmgpu.strategies.distributions" not in sys.modules
followed = []
sys.modules["kerasmgpu.strategies.distributions"] = types.SimpleNamespace(
    follow=followed.append
)
one, other = keras.distribution.DataParallel(), keras.distribution.DataParallel()
with one.scope():
    set_global_attribute("distribution", other)
    assert keras.distribution.distribution() is other
    set_global_attribute("anything", 1)
    clear_session()
    assert keras.distribution.distribution() is None
assert followed == [one, other, None, None], followed
print("done")
"""


@pytest.fixture
def followed(monkeypatch):
    """List of the distributions that were followed."""
    found = []
    stub = types.SimpleNamespace(follow=found.append)
    monkeypatch.setitem(sys.modules, FOLLOWER, stub)
    yield found
    keras.distribution.set_distribution(None)


@pytest.mark.slow
def test_kerasmgpu_first():
    done = subprocess.run(
        [sys.executable, "-c", KERASMGPU_FIRST], capture_output=True, text=True
    )
    assert done.stdout == "done\n", done.stderr


def test_the_distribution_of_a_thread_is_followed(followed):
    one, other = (keras.distribution.DataParallel() for _ in range(2))
    keras.distribution.set_distribution(one)
    with other.scope():
        assert keras.distribution.distribution() is other
    assert keras.distribution.distribution() is one
    thread = threading.Thread(
        target=keras.distribution.set_distribution, args=(None,)
    )
    thread.start()
    thread.join()
    assert keras.distribution.distribution() is one
    assert followed == [one, other, one, None]


@pytest.mark.parametrize(
    "clear", [keras.utils.clear_session, keras.backend.clear_session]
)
def test_a_cleared_session_has_no_distribution(followed, clear):
    one = keras.distribution.DataParallel()
    keras.distribution.set_distribution(one)
    clear(free_memory=False)
    assert keras.distribution.distribution() is None
    assert followed == [one, None]


def test_a_distribution_that_cannot_be_followed_is_not_set(monkeypatch):
    def follow(value):
        raise ValueError("cannot follow")

    stub = types.SimpleNamespace(follow=follow)
    monkeypatch.setitem(sys.modules, FOLLOWER, stub)
    with pytest.raises(ValueError, match="cannot follow"):
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    assert keras.distribution.distribution() is None


@pytest.mark.parametrize("backend", [None, types.ModuleType("keras.src.jax")])
def test_another_backend_is_left_alone(backend):
    module = types.SimpleNamespace(distribution_lib=backend)
    _keras_hook.complete(module)
    assert vars(module) == {"distribution_lib": backend}
