"""Replaces methods of single objects of Keras for a while."""

import functools
from collections.abc import Callable
from typing import Any


class Patches:
    """Replaces methods of objects until `undo`."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, how: Callable[..., Any]) -> None:
        """Replaces a method of one object.

        Args:
            name: String, the method.
            how: Function to call instead, with the original method and the
                arguments.
        """
        original = getattr(owner, name)

        @functools.wraps(original)
        def patched(*args: Any, **kwargs: Any) -> Any:
            return how(original, *args, **kwargs)

        self._before.append((owner, name, vars(owner).get(name)))
        # Bypasses Keras's attribute tracker.
        object.__setattr__(owner, name, patched)

    def undo(self) -> None:
        """Restores all methods."""
        for owner, name, before in reversed(self._before):
            if before is None:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, before)
        self._before.clear()
