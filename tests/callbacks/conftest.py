"""Tests make callbacks in the call of `fit`, which Keras must be ready for."""

import pytest

from kerasmgpu import _keras


@pytest.fixture(scope="session", autouse=True)
def prepared_keras():
    """Installs the seams as the first strategy of a program does."""
    _keras.install()
