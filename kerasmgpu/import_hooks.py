"""Calls functions as soon as modules of other packages have been imported."""

import importlib.abc
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_Act = Callable[[Any], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module as others do, and calls a function once it has run."""

    def __init__(self, awaited: str, act: _Act) -> None:
        self._awaited = awaited
        self._act = act

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._awaited:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._act(module)

            # Of this loader only, which was made for this module.
            setattr(spec.loader, "exec_module", execute_and_act)  # noqa: B010
        return spec


def after_import(name: str, act: _Act) -> None:
    """Calls a function with a module: now, or when it has been imported."""
    module = sys.modules.get(name)  # `None` where imports of it are refused.
    if module is not None:
        act(module)
    else:
        sys.meta_path.insert(0, _Finder(name, act))
