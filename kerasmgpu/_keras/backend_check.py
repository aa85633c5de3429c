"""Raises if Keras's backend isn't TensorFlow, before anything of it is used."""

import importlib
import os

from kerasmgpu.errors import InputError


def require_tensorflow() -> None:
    """Imports Keras, and raises unless its backend is TensorFlow.

    Raises:
        InputError: For another backend, installed or not.
    """
    try:
        backend = importlib.import_module("keras").config.backend()
    except ModuleNotFoundError as error:
        backend = os.environ.get("KERAS_BACKEND", "tensorflow")
        if backend == "tensorflow" or error.name == "keras":
            raise
    if backend != "tensorflow":
        raise InputError(
            "kerasmgpu needs Keras's TensorFlow backend. Received: "
            f"{backend!r}; set the environment variable "
            "KERAS_BACKEND=tensorflow before Keras is imported."
        ) from None
