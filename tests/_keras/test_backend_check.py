"""Another backend of Keras is refused in one line, installed or not."""

import importlib
import types

import pytest

from kerasmgpu._keras import backend_check
from kerasmgpu.errors import InputError


def test_a_backend_that_is_not_installed(monkeypatch):
    def import_keras(name):
        raise ModuleNotFoundError("No module named 'jax'", name="jax")

    monkeypatch.setattr(importlib, "import_module", import_keras)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(InputError, match="Received: 'jax'; set the"):
        backend_check.require_tensorflow()


def test_a_backend_that_is_installed(monkeypatch):
    config = types.SimpleNamespace(backend=lambda: "torch")
    keras = types.SimpleNamespace(config=config)
    monkeypatch.setattr(importlib, "import_module", lambda name: keras)
    with pytest.raises(InputError, match="Received: 'torch'; set the"):
        backend_check.require_tensorflow()


def test_a_missing_keras_is_not_a_backend(monkeypatch):
    def import_keras(name):
        raise ModuleNotFoundError("No module named 'keras'", name="keras")

    monkeypatch.setattr(importlib, "import_module", import_keras)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(ModuleNotFoundError):
        backend_check.require_tensorflow()
