"""Iterators that copy shares of batches to devices are made one at a time.

Made in two threads at a time, a device's part of one sometimes reads the other's
batches (TensorFlow 2.21; without us, too): models that train or predict in
threads on GPUs would get each other's rows.
"""

import threading
from typing import Any

from kerasmgpu.engine.private_names import OwnedMultiDeviceIterator
from kerasmgpu.engine.seams import Original, seam

_one_at_a_time = threading.RLock()


@seam(OwnedMultiDeviceIterator, "__init__")
def _init(original: Original, *args: Any, **kwargs: Any) -> None:
    with _one_at_a_time:
        original(*args, **kwargs)
