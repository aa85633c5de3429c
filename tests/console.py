"""Runs `kerasmgpu` as users do: the installed script, in another folder."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import kerasmgpu

_ROOT = str(pathlib.Path(kerasmgpu.__file__).resolve().parents[1])

# Files beside the user's module that nothing may import: names of modules that
# kerasmgpu, TensorFlow or Python import, and of those themselves.
_NAMES = """
absl calendar code copy difflib heapq json kerasmgpu keras numpy queue random
rich statistics tensorflow textwrap
""".split()


def command(*arguments):
    """The command line, a list of strings."""
    script = shutil.which("kerasmgpu", path=os.path.dirname(sys.executable))
    if script is None:
        raise FileNotFoundError(
            f"no script kerasmgpu beside {sys.executable}: pip install -e ."
        )
    return [script, *arguments]


def environment(**changed):
    """The environment without `PYTHONPATH`.

    Where that names another copy of the package, the copy is tested.
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if _ROOT in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        kept["PYTHONPATH"] = _ROOT
    return {**kept, **changed}


def run(*arguments, folder=None, timeout=300, **environ):
    """Runs the command to its end, in an empty folder or the one given."""
    with tempfile.TemporaryDirectory() as elsewhere:
        return subprocess.run(
            command(*arguments),
            cwd=folder or elsewhere,
            env=environment(**environ),
            capture_output=True,
            text=True,
            timeout=timeout,
        )


def start(*arguments, folder, **keywords):
    """Starts the command; returns its `subprocess.Popen`."""
    return subprocess.Popen(
        command(*arguments), cwd=folder, env=environment(), **keywords
    )


def put_module(source, folder, name="my_module"):
    """Copies a module to a folder, among files that shadow others."""
    shutil.copy(source.__file__, folder / f"{name}.py")
    for name in _NAMES:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name}.py')")
