"""Functions are called with a module once it has been imported."""

import importlib
import sys

import pytest

from kerasmgpu.import_hooks import after_import

NAME = "awaited_module"


@pytest.fixture
def found(tmp_path, monkeypatch):
    """List of the modules that the hook was called with, and their values."""
    (tmp_path / f"{NAME}.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    found = []
    after_import(NAME, lambda module: found.append((module, module.value)))
    yield found
    sys.modules.pop(NAME, None)


def test_it_is_called_behind_the_import_and_once(found):
    assert found == []
    module = importlib.import_module(NAME)
    importlib.import_module(NAME)
    assert found == [(module, 3)]


def test_of_a_module_that_is_there_it_is_called_at_once(found):
    module = importlib.import_module(NAME)
    after_import(NAME, found.append)
    assert found[1:] == [module]


def test_a_module_that_is_missing_stays_so(found):
    after_import("no_such_module", found.append)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        importlib.import_module("no_such_module")
    assert found == []
