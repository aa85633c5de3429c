"""Registers and installs patches of Keras and TensorFlow.

A seam is a function, method or class that a dispatcher or subclass of ours
replaces. It changes the behaviour of models of our strategies, and calls the
original for all others.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Original = Callable[..., Any]
"""Function or method that a seam replaced, and that its dispatcher calls."""

_Patch = TypeVar("_Patch", bound=Callable[..., Any])

SEAMS: list[tuple[Any, str]] = []
"""`(owner, name)` of every patched name, in order, without duplicates."""

_installed = False
_replacements = []
_dispatchers = []


def seam(owner: Any, name: str) -> Callable[[_Patch], _Patch]:
    """Returns a decorator: `install()` replaces `owner.name` by the function.

    The decorated function gets the original as its first argument.
    """

    def register(dispatcher: _Patch) -> _Patch:
        SEAMS.append((owner, name))
        _dispatchers.append((owner, name, dispatcher))
        return dispatcher

    return register


def replaces(module: Any, name: str) -> Callable[[_Patch], _Patch]:
    """Returns a decorator: `install()` replaces a class by this subclass."""

    def register(kind: _Patch) -> _Patch:
        SEAMS.append((module, name))
        _replacements.append((module, name, kind))
        return kind

    return register


def attribute(owner: Any, name: str, value: Any) -> None:
    """Registers an attribute that `install()` adds to a class lacking it."""
    _replacements.append((owner, name, value))


def install() -> None:
    """Installs all patches; does nothing when called again."""
    global _installed
    if _installed:
        return
    for owner, name, dispatcher in _dispatchers:
        setattr(owner, name, _dispatching(getattr(owner, name), dispatcher))
    for owner, name, value in _replacements:
        setattr(owner, name, value)
    _installed = True


def _dispatching(
    original: Original, dispatcher: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return dispatcher(original, *args, **kwargs)

    return call
