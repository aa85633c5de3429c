"""Mistakes in the user's module, told before TensorFlow is imported."""

import pytest

from kerasmgpu.commands import user_source
from kerasmgpu.errors import InputError


@pytest.fixture
def module(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    "text, message",
    [
        ("import keras\ndef build(:\n", "mine.py, line 2: .*: def build"),
        ("def build():\nreturn 1", "line 2: expected an indented block"),
        ("import kers\ndef build(): pass", "line 1: no module named 'kers'"),
        ("from kers.a import b", "line 1: no module named 'kers'"),
        ("def make(): pass", "mine.py has no function 'build'. It has make"),
        ("class A:\n def build(self): pass", "has no function 'build'. It has"),
        ("def a():\n def build(): pass", "has no function 'build'. It has a"),
        ("a = 1\0", "null byte|no Python source"),
    ],
)
def test_mistakes(module, text, message):
    with pytest.raises(InputError, match=message):
        user_source.check(module(text), "build")


@pytest.mark.parametrize(
    "text",
    [
        "def build(): pass",
        "class build: pass",
        "build = lambda: 1",
        "from json import loads as build",
        "from json import *",
        "if True:\n def build(): pass",
        "for build in [len]: pass",
        "try:\n import kers\nexcept ImportError:\n build = len",
        "def __getattr__(name): return len",
        "globals()['build'] = len",
        "import beside, keras, tensorflow, json\ndef build(): pass",
        "from . import other\nbuild = other.build",
    ],
)
def test_what_may_work_is_left_to_python(module, text):
    module("", "beside.py")
    user_source.check(module(text), "build")


def test_modules_of_packages_are_found(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "a_pack" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/nets.py"):
        (tmp_path / "a_pack" / name).touch()
    found = user_source.find("a_pack.inner.nets")
    assert found == tmp_path / "a_pack/inner/nets.py"
    assert user_source.find("a_pack.inner").name == "__init__.py"
    assert user_source.find("a_pack.missing") is None
    assert user_source.find("math") is None  # No source.
