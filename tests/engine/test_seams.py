"""The private names of TensorFlow that our strategies patch."""

import pytest

from kerasmgpu import _keras  # noqa: F401  Registers all seams.
from kerasmgpu.engine import seams


def seams_of(package):
    """The seams whose owners are in a package, as its name begins."""
    return [
        (owner, name)
        for owner, name in seams.SEAMS
        if home(owner).startswith(package)
    ]


def home(owner):
    return getattr(owner, "__module__", owner.__name__)


def assert_is_dispatched(owner, name):
    there = getattr(owner, name)
    original = there.__base__ if isinstance(there, type) else there.__wrapped__
    assert original.__name__ == name
    assert original.__module__.startswith(home(owner).split(".")[0])


@pytest.fixture(autouse=True)
def installed(replicas):
    replicas(2)


@pytest.mark.parametrize(
    "owner, name",
    seams_of("tensorflow."),
    ids=lambda part: getattr(part, "__name__", part),
)
def test_seam_is_dispatched_and_keeps_its_original(owner, name):
    assert_is_dispatched(owner, name)


def test_each_name_is_patched_in_one_place():
    assert len(set(seams.SEAMS)) == len(seams.SEAMS)


def test_seams_are_of_keras_and_tensorflow():
    known = seams_of("keras.src.") + seams_of("tensorflow.")
    assert len(known) == len(seams.SEAMS)
