"""The places in Keras where kerasmgpu answers.

A seam is a function, method or class of Keras that ours stands in front of: for
models of one of our strategies it does what they need, for all others it calls
the original.
"""

import functools

import keras

from kerasmgpu.errors import InputError

SEAMS = []
"""`(owner, name)` of every patched name, in order; each is there once."""

_installed = False
_replacements = []
_dispatchers = []


def seam(owner, name):
    """Replaces `owner.name` by a dispatcher, once `install()` is called.

    The decorated function gets the original as its first argument.
    """

    def register(dispatcher):
        SEAMS.append((owner, name))
        _dispatchers.append((owner, name, dispatcher))
        return dispatcher

    return register


def replaces(module, name):
    """Puts the decorated class in the place of the one it is made from."""

    def register(kind):
        SEAMS.append((module, name))
        _replacements.append((module, name, kind))
        return kind

    return register


def attribute(owner, name, value):
    """Gives a class something that it lacks, once `install()` is called."""
    _replacements.append((owner, name, value))


def install():
    """Connects our strategies to Keras; does nothing the second time."""
    global _installed
    if _installed:
        return
    _require_tensorflow_backend()
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


def _require_tensorflow_backend():
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            "kerasmgpu needs Keras's TensorFlow backend. Received: "
            f"{keras.backend.backend()!r}; set the environment variable "
            "KERAS_BACKEND=tensorflow before Keras is imported."
        )
