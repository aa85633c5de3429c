"""Which strategies are ours, and the interface that they have."""

import inspect

import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours
from tests.devices import device_names


def test_ours_are_told_from_tensorflows(replicas):
    assert is_ours(replicas(1)) and is_ours(replicas(2))
    theirs = tf.distribute.MirroredStrategy(device_names(2))
    for other in (theirs, tf.distribute.get_strategy(), None, object()):
        assert not is_ours(other)


@pytest.mark.parametrize(
    "kind",
    [kerasmgpu.MirroredStrategy, kerasmgpu.MultiWorkerMirroredStrategy],
)
def test_methods_take_what_the_interface_says(kind):
    """Also checked by mypy, which can't see TensorFlow's own attributes."""
    for name, member in vars(ExactStrategy).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            taken = inspect.signature(getattr(kind, name)).parameters
            assert list(taken) == list(inspect.signature(member).parameters)
    for name in ("extended", "num_replicas_in_sync", "replicas"):
        assert hasattr(kind, name)
