"""Fixtures of tests that change what Keras keeps for a whole process."""

import keras
import pytest


@pytest.fixture(autouse=True)
def no_distribution():
    """Ends what a test has set by `keras.distribution.set_distribution`."""
    yield
    keras.distribution.set_distribution(None)


@pytest.fixture
def float64():
    """Layers and metrics compute in float64."""
    yield use("float64")
    use("float32")


def use(name):
    keras.config.set_floatx(name)  # Of metrics.
    keras.config.set_dtype_policy(name)
