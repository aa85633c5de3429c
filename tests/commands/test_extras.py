"""Optional packages that are missing."""

import sys

import pytest

from kerasmgpu.commands import extras
from kerasmgpu.errors import InputError
from kerasmgpu.recipes import alexnet


def test_what_is_installed_is_not_imported():
    extras.require("pytest", "pytest", "test", "a test")
    assert not extras.is_installed("no_such_module")


def test_the_line_says_what_needs_it_and_how_to_get_it():
    with pytest.raises(
        InputError,
        match=r"^--x needs no-such, which is not installed: pip install "
        r"no-such, or kerasmgpu\[y\]$",
    ):
        extras.require("no_such_module", "no-such", "y", "--x")


def test_digits_without_scikit_learn_are_refused_before_anything(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match="--dataset=digits needs scikit-learn"):
        alexnet.run(preset="batch_study")
    with pytest.raises(InputError, match="--batch_sizes must be"):
        alexnet.run(preset="batch_study", batch_sizes=["3"])
