"""Keras and TensorFlow of other versions than those that are known: one warning."""

import pathlib
import re
import subprocess
import sys

import pytest

from kerasmgpu._keras import versions

PROGRAM = """
import warnings
import keras, tensorflow as tf
keras.version = lambda: "3.99.1"
tf.version.VERSION = "2.20.0"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import kerasmgpu
    kerasmgpu.strategy()
    kerasmgpu.MirroredStrategy()
    kerasmgpu.callbacks.Checkpoint("folder")
for one in caught:
    if "kerasmgpu" in str(one.message):
        print(one.message)
"""


@pytest.mark.slow
def test_another_version_is_told_once():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True
    )
    (line,) = done.stdout.splitlines()
    assert line.startswith(
        "kerasmgpu was checked on Keras 3.10 to 3.15, and this is Keras 3.99.1."
    )
    assert "python -m kerasmgpu.verify" in line


def test_both_are_told_together(monkeypatch):
    monkeypatch.setattr(versions, "KERAS_RANGE", ((2, 0), (2, 1)))
    monkeypatch.setattr(versions, "TENSORFLOW_RANGE", ((1, 0), (1, 15)))
    with pytest.warns(UserWarning) as told:
        versions.warn_outside_range()
    (one,) = told
    expected = "checked on Keras 2.0 to 2.1 and TensorFlow 1.0 to 1.15, and"
    assert expected in str(one.message)


def test_known_versions_are_not_told(monkeypatch, recwarn):
    monkeypatch.setattr(versions.keras, "version", lambda: "3.15.1")
    monkeypatch.setattr(versions.tf.version, "VERSION", "2.18.0-rc1")
    versions.warn_outside_range()
    assert not recwarn.list


@pytest.mark.parametrize(
    "package, checked",
    [
        ("keras", versions.KERAS_RANGE),
        ("tensorflow", versions.TENSORFLOW_RANGE),
    ],
)
def test_the_checked_range_is_said_once_and_never_downgrades(package, checked):
    root = pathlib.Path(__file__).parents[2]
    (first_major, first), (last_major, last) = checked
    setup = (root / "setup.py").read_text("utf-8")
    required = re.findall(rf'"{package}(?:\[[\w-]+\])?([<>=][^"]*)"', setup)
    assert required and set(required) == {f">={first_major}.{first}"}
    constraints = root / ".ci" / "checked_versions.txt"
    if constraints.exists():  # It is not in the source distribution.
        assert (
            f"{package}<{last_major}.{last + 1}"
            in constraints.read_text("utf-8").splitlines()
        )
