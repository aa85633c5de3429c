"""The places in Keras where kerasmgpu answers, and the versions they are known in.

A seam is a function, method or property of Keras that a dispatcher replaces:
inside a step of one of our strategies the dispatcher calls the exact piece in
`kerasmgpu/step/`, everywhere else the original.
"""

import functools
import warnings

import keras

from kerasmgpu.errors import InputError

KERAS_RANGE = ((3, 10), (3, 15))
"""First and last minor version of Keras on which the seams were checked."""

SEAMS = []
"""`(owner, name)` of every private or patched name, in order."""

_installed = False
_attributes = []
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


def attribute(owner, name, descriptor):
    """Puts a descriptor in front of an instance attribute, on `install()`."""
    _attributes.append((owner, name, descriptor))


def install():
    """Connects the exact step to Keras; does nothing the second time."""
    global _installed
    if _installed:
        return
    _require_tensorflow_backend()
    _warn_outside_range()
    for owner, name, dispatcher in _dispatchers:
        original = getattr(owner, name)
        setattr(owner, name, _dispatching(original, dispatcher))
    for owner, name, descriptor in _attributes:
        setattr(owner, name, descriptor)
    _installed = True


def _dispatching(original, dispatcher):
    """What stands in for `original`: a property, function or method."""
    if isinstance(original, property):
        return property(lambda self: dispatcher(original.fget, self))

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


def _warn_outside_range():
    version = tuple(int(part) for part in keras.version().split(".")[:2])
    first, last = KERAS_RANGE
    if not first <= version <= last:
        warnings.warn(
            f"kerasmgpu was checked on Keras {first[0]}.{first[1]} to "
            f"{last[0]}.{last[1]}, and this is {keras.version()}: run "
            "`python -m kerasmgpu.verify` on your model before you rely on "
            "its results.",
            stacklevel=3,
        )
