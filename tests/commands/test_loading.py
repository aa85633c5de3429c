"""What is printed while TensorFlow is imported, and before."""

import os
import subprocess
import sys

import pytest

from kerasmgpu import __main__ as commands
from kerasmgpu.commands import loading

RECIPES = [
    name
    for name, (module, _) in commands.COMMANDS.items()
    if module.startswith("kerasmgpu.recipes.")
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Function that runs a command until it imports TensorFlow."""
    ours = tmp_path / "ours"
    ours.mkdir()
    for name in ("tensorflow", "keras"):
        (ours / f"{name}.py").write_text(
            "import os; os.write(2, b'imported\\n'); os._exit(0)"
        )
    (ours / "sklearn.py").touch()  # The study's data; not of the extra `test`.
    path = os.pathsep.join(filter(None, (str(ours), *sys.path)))
    monkeypatch.setenv("PYTHONPATH", path)

    def run(*arguments, environ=None):
        return subprocess.run(
            [sys.executable, "-m", "kerasmgpu", *arguments],
            env=os.environ | (environ or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_says_that_tensorflow_is_loaded(run, recipe):
    done = run(recipe)
    assert done.stderr.splitlines() == [loading.LINE, "imported"]
    assert (done.returncode, done.stdout) == (0, "")


def test_only_the_first_worker_of_a_job_says_it(run):
    job = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": %s}'
    task = '{"type": "worker", "index": 1}'
    done = run("polynomial", environ={"TF_CONFIG": job % task})
    assert done.stderr.splitlines() == ["imported"]


def test_what_needs_no_tensorflow_does_not_speak_of_it(run):
    done = run(
        "plan",
        "--step_seconds=0.3",
        "--batch_size_per_replica=64",
        "--parameters=25.6e6",
        "--replica_counts=2",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_said_once_and_not_where_it_is_loaded(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setattr(sys, "meta_path", [])
    loading.announce()
    (finder,) = sys.meta_path
    assert finder.find_spec("numpy") is None
    assert capsys.readouterr().err == ""
    assert finder.find_spec("keras") is None
    assert capsys.readouterr().err == loading.LINE + "\n"
    assert sys.meta_path == []
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    loading.announce()
    assert sys.meta_path == []
