"""Which private names of Keras and TensorFlow kerasmgpu uses, and which moved.

    python -m tests._keras.private_names > before.json
    python -m tests._keras.private_names before.json   # with other versions

The names are read from kerasmgpu's source, which is not imported: one that is
gone doesn't hide the others. Attributes of objects, `model._initial_epoch` say,
are not seen; what they do is tested.
"""

import ast
import importlib
import inspect
import json
import pathlib
import re
import sys

PACKAGE = pathlib.Path(__file__).parents[2] / "kerasmgpu"
_PRIVATE = ("keras.src", "tensorflow.python", "tensorflow.core")
_REGISTER = "kerasmgpu.engine.private_names"


def used(source):
    """Full names of what a module's source uses, a set of strings.

    What it imports, attributes of that, methods that its classes override, and
    what it puts a seam at.
    """
    tree = ast.parse(source)
    imported = _imported(tree, _PRIVATE)
    if _imported(tree, (_REGISTER,)):
        register = (PACKAGE / "engine" / "private_names.py").read_text("utf-8")
        there = _imported(ast.parse(register), _PRIVATE)
        imported |= {
            name: there[full.rpartition(".")[-1]]
            for name, full in _imported(tree, (_REGISTER,)).items()
        }

    def full(node):
        """The full name of an expression, or `None` for what is not private."""
        if isinstance(node, ast.Name):
            return imported.get(node.id)
        if isinstance(node, ast.Attribute) and full(node.value):
            return f"{full(node.value)}.{node.attr}"
        return None

    names = set(imported.values())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and full(node):
            names.add(full(node))
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{full(base)}.{method.name}"
                for base in node.bases
                if full(base)
                for method in node.body
                if isinstance(method, ast.FunctionDef)
            }
        elif isinstance(node, ast.Call) and len(node.args) == 2:
            # seam(owner, "name") and replaces(owner, "name").
            owner, name = node.args
            if full(owner) and isinstance(name, ast.Constant):
                names.add(f"{full(owner)}.{name.value}")
    return names


def _imported(tree, packages):
    """What is imported from some packages: `{name: full name}`."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(packages)
        for alias in node.names
    }


def signature(name):
    """The signature of what has a full name, or its type; `None` if it is gone."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
            break
        except ImportError:
            pass
    else:
        return None
    for part in parts[end:]:
        if not hasattr(found, part):
            return None
        found = getattr(found, part)
    try:
        text = str(inspect.signature(found))
    except (TypeError, ValueError):
        return type(found).__name__
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def described():
    """All names with their signatures, and the versions that these are of."""
    import keras
    import tensorflow as tf

    names = set()
    for path in PACKAGE.rglob("*.py"):
        names |= used(path.read_text("utf-8"))
    return {
        "versions": f"Keras {keras.version()}, TensorFlow {tf.version.VERSION}",
        "names": {name: signature(name) for name in sorted(names)},
    }


def moved(before, now):
    """A line for each name that is gone or takes other arguments.

    Args:
        before: `described()` with the versions that kerasmgpu is known in.
        now: The same with others.
    """
    lines = []
    for name, known in before["names"].items():
        found = now["names"].get(name)
        if known is not None and found is None:
            lines.append(f"gone: {name}")
        elif known != found:
            lines.append(f"changed: {name}\n  before: {known}\n  now: {found}")
    return lines


def main(argv):
    now = described()
    if len(argv) == 1:
        print(json.dumps(now, indent=1))
        return 0
    before = json.loads(pathlib.Path(argv[1]).read_text("utf-8"))
    lines = moved(before, now)
    print(f"Before: {before['versions']}. Now: {now['versions']}.")
    print(
        "\n".join(lines) or f"All {len(before['names'])} names are as before."
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
