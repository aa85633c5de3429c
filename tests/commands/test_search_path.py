"""Where a command finds the user's modules, and where ours."""

import subprocess
import sys
import types

import pytest

from kerasmgpu.commands import references, search_path
from kerasmgpu.errors import InputError
from tests import console


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A command's working directory, in a program's process."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(search_path, "_folders", [])
    monkeypatch.chdir(tmp_path)
    search_path.leave_to_the_user()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_ours_do_not_come_from_the_working_directory(folder):
    before = list(sys.path)
    assert str(folder) not in before
    (folder / "code.py").write_text("mine = 1")
    assert search_path.find("code").origin == str(folder / "code.py")
    search_path.load("json.tool")
    assert sys.path == before


def test_the_users_module_and_what_it_imports_come_first(folder):
    package = folder / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text("import antigravity as mine, json")
    # Another one of this name is installed, and json is imported already.
    (folder / "antigravity.py").write_text("def build():\n    return 3")
    (folder / "json.py").write_text("raise ImportError")
    module = references.load("my_package.models:build")
    assert references.function_of(module.mine, "antigravity:build")() == 3
    assert sys.path[0] == str(folder)


@pytest.mark.parametrize("reference", ["my_net:build", "{}/my_net.py:build"])
def test_a_name_in_use_is_refused(folder, reference, monkeypatch):
    reference = reference.format(folder)
    path = folder / "my_net.py"
    path.write_text("def build(): pass")
    for _ in range(2):
        assert references.load(reference).__file__ == str(path)
    other = types.ModuleType("my_net")
    other.__file__ = "/usr/lib/my_net.py"
    sys.modules["my_net"] = other
    with pytest.raises(
        InputError, match=r"my_net.py has the name .* \(/usr/lib/my_net.py\)"
    ):
        references.load(reference)


def test_a_child_finds_what_its_parent_finds(folder, monkeypatch):
    state = search_path.for_child()
    monkeypatch.setattr(sys, "path", [])
    search_path._folders.clear()
    search_path.enter(state)
    (folder / "my_module.py").touch()
    assert search_path.find("my_module") is not None
    assert search_path.find("json") is not None


def test_python_m_finds_the_same(tmp_path):
    """Both search the folder for the module, and import none before it."""
    (tmp_path / "my_module.py").write_text("raise ImportError('not yet')")
    for name in ("json", "queue"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name}')")
    arguments = ["memory", "my_module:build", "--replicas=0"]
    script = console.run(*arguments, folder=tmp_path)
    module = subprocess.run(
        [sys.executable, "-m", "kerasmgpu", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert script.returncode == module.returncode == 1
    assert script.stderr == module.stderr
    assert script.stderr.startswith("error: replicas must be ")
