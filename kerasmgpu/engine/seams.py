"""Registers and installs patches of Keras and TensorFlow.

A seam is a function, method or class that a dispatcher or subclass of ours
replaces. It changes models of our strategies, and calls the original for all
others.
"""

import functools

SEAMS = []
"""`(owner, name)` of every patched name, in order, without duplicates."""

_installed = False
_replacements = []
_dispatchers = []


def seam(owner, name):
    """Returns a decorator: `install()` replaces `owner.name` by the function.

    The decorated function gets the original as its first argument.
    """

    def register(dispatcher):
        SEAMS.append((owner, name))
        _dispatchers.append((owner, name, dispatcher))
        return dispatcher

    return register


def replaces(module, name):
    """Returns a decorator: `install()` replaces a class by this subclass."""

    def register(kind):
        SEAMS.append((module, name))
        _replacements.append((module, name, kind))
        return kind

    return register


def attribute(owner, name, value):
    """Registers an attribute that `install()` adds to a class lacking it."""
    _replacements.append((owner, name, value))


def install():
    """Installs all patches; does nothing when called again."""
    global _installed
    if _installed:
        return
    for owner, name, dispatcher in _dispatchers:
        setattr(owner, name, _dispatching(getattr(owner, name), dispatcher))
    for owner, name, value in _replacements:
        setattr(owner, name, value)
    _installed = True


def _dispatching(original, dispatcher):
    @functools.wraps(original)
    def call(*args, **kwargs):
        return dispatcher(original, *args, **kwargs)

    return call
