"""Prepares XLA's cache before TensorFlow lists devices, whoever asks for them.

TensorFlow reads its flags, the folder of compiled programs among them, when it
first lists devices (`engine/xla_cache.py`). Many programs do so before they make
a strategy: for `set_memory_growth`, or to count GPUs. `Context` of
`tensorflow.python.eager` lists them, for `tf.config` and for the first operation;
checked on TensorFlow 2.21. A version without this method prepares the cache when
a strategy is made, and a warning says what that costs.
"""

import functools
import importlib
import sys
from typing import Any

from kerasmgpu.import_hooks import after_import

_CONTEXT = "tensorflow.python.eager.context"
_CACHE = "kerasmgpu.engine.xla_cache"


def install() -> None:
    """Wraps TensorFlow's method now, or when TensorFlow has been imported."""
    after_import("tensorflow", _wrap)


def _wrap(tensorflow: Any) -> None:
    context = getattr(sys.modules.get(_CONTEXT), "Context", None)
    list_devices = getattr(context, "_initialize_physical_devices", None)
    if context is None or list_devices is None:
        return

    @functools.wraps(list_devices)
    def prepare_and_list(self: Any, *args: Any, **kwargs: Any) -> Any:
        importlib.import_module(_CACHE).prepare()
        return list_devices(self, *args, **kwargs)

    context._initialize_physical_devices = prepare_and_list
