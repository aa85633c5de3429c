"""Finds mistakes in the user's module by its source, and imports nothing.

The module imports TensorFlow, which takes seconds: what its source shows is told
before that.
"""

import ast
import importlib.machinery
import pathlib
import sys
from collections.abc import Iterator

from kerasmgpu.commands import search_path
from kerasmgpu.errors import InputError


def check(path: pathlib.Path, function: str) -> None:
    """Raises if a module can't be imported, or lacks a function.

    Args:
        path: `pathlib.Path` of the module's source.
        function: String, the function's name.

    Raises:
        InputError: For a syntax error, an import of a module that doesn't
            exist, or if no top-level statement binds the name.
    """
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise InputError(
            f"{path}, line {error.lineno}: {error.msg}: {line}"
        ) from None
    except ValueError as error:  # Null bytes.
        raise InputError(f"{path} is no Python source: {error}") from None
    for statement in tree.body:
        _require_modules(statement, path)
    names = set(_bound(tree.body))
    if function not in names | {"*"} and not {"*", "__getattr__"} & names:
        functions = [
            one.name for one in tree.body if isinstance(one, ast.FunctionDef)
        ]
        raise InputError(
            f"{path} has no function {function!r}. It has "
            f"{', '.join(functions) or 'none'}"
        )


def find(module: str) -> pathlib.Path | None:
    """Returns the source of a module by its dotted name, or `None`."""
    top, *parts = module.split(".")
    spec = search_path.find(top)
    if spec is None or spec.origin is None:
        return None
    path = pathlib.Path(spec.origin)
    for part in parts:
        folder = path.parent if path.name == "__init__.py" else None
        if folder is None:
            return None
        path = folder / part / "__init__.py"
        if not path.is_file():
            path = folder / f"{part}.py"
    return path if path.suffix == ".py" and path.is_file() else None


def _require_modules(statement: ast.stmt, path: pathlib.Path) -> None:
    """Raises for an unconditional import of what isn't there."""
    modules: list[str] = []
    if isinstance(statement, ast.Import):
        modules = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom) and not statement.level:
        modules = [statement.module or ""]
    for top in (module.partition(".")[0] for module in modules):
        beside = importlib.machinery.PathFinder.find_spec(
            top, [str(path.parent)]
        )
        known = top in sys.modules or top in sys.stdlib_module_names
        if not known and beside is None and search_path.find(top) is None:
            raise InputError(
                f"{path}, line {statement.lineno}: no module named {top!r}"
            )


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """Yields the names that statements bind, in branches and loops too."""
    for statement in body:
        if isinstance(
            statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        ):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]
            elif isinstance(node, ast.Name) and not isinstance(
                node.ctx, ast.Load
            ):
                yield node.id
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Name) and node.id in ("globals", "exec"):
                yield "*"  # Anything.
