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
import tensorflow as tf

from kerasmgpu import _keras_hook
from kerasmgpu.errors import InputError

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


class Of310:
    """`Distribution` of Keras 3.10, whose processes are private."""

    def distribute_dataset(self, dataset):
        raise NotImplementedError


class Of316:
    """`Distribution` of Keras 3.16, whose subclasses count model replicas."""

    num_processes = 1

    @property
    def num_data_shards(self):
        raise NotImplementedError

    data_shard_id = num_data_shards


@pytest.mark.parametrize("of_version", [Of310, Of316])
def test_programs_for_any_version_of_keras_shard_nothing(of_version):
    class Distribution(of_version):
        pass

    _keras_hook.complete_class(Distribution)
    shards_nothing(type("Own", (Distribution,), {})())


def test_distributions_of_the_installed_keras_shard_nothing():
    base = keras.distribution.DataParallel.__base__
    mesh = keras.distribution.DeviceMesh((1,), ("batch",), ["cpu:0"])
    shards_nothing(keras.distribution.DataParallel(auto_shard_dataset=False))
    shards_nothing(type("Own", (base,), {})(mesh))


def shards_nothing(distribution):
    assert (distribution.num_processes, distribution.num_data_shards) == (1, 1)
    assert distribution.data_shard_id == 0
    data = tf.data.Dataset.range(2)
    assert distribution.distribute_dataset(data) is data


def test_several_processes_are_keras_s():
    """Its own tests pretend to have them."""

    class Distribution:
        num_processes = 2
        num_data_shards = property(lambda self: 3)

    _keras_hook.complete_class(Distribution)
    assert Distribution().num_data_shards == 3


def test_a_mesh_without_its_devices_says_how_to_make_them():
    with pytest.raises(
        InputError, match=r"needs 2 devices\. .*strategy\(virtual_devices=2\)$"
    ):
        keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["cpu:0"])
    with pytest.raises(ValueError, match="does not match the number"):
        keras.distribution.DeviceMesh((1, 2), ("batch", "model"), ["gpu:0"])
    with pytest.raises(ValueError, match="should have same size"):
        keras.distribution.DeviceMesh((2,), ("batch", "model"), ["cpu:0"])
