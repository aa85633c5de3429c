"""Callbacks for `keras.Model.fit`.

They are imported on first use: what only reads checkpoints needs no TensorFlow.
"""

from typing import TYPE_CHECKING

from kerasmgpu import _import_on_use

if TYPE_CHECKING:
    from kerasmgpu.callbacks.audit import Audit
    from kerasmgpu.callbacks.checkpoint import Checkpoint
    from kerasmgpu.callbacks.choose_xla import ChooseXla
    from kerasmgpu.callbacks.default_callbacks import default
    from kerasmgpu.callbacks.device_stats import DeviceStats
    from kerasmgpu.callbacks.first_worker import OnFirstWorker
    from kerasmgpu.callbacks.hang_watch import HangWatch
    from kerasmgpu.callbacks.monitors import Monitors
    from kerasmgpu.callbacks.not_finite import NotFinite
    from kerasmgpu.callbacks.progress import Progress
    from kerasmgpu.callbacks.run_record import RunRecord
    from kerasmgpu.callbacks.throughput import ThroughputLogger

__all__ = [
    "Audit",
    "Checkpoint",
    "ChooseXla",
    "DeviceStats",
    "HangWatch",
    "Monitors",
    "NotFinite",
    "OnFirstWorker",
    "Progress",
    "RunRecord",
    "ThroughputLogger",
    "default",
]

_import_on_use(
    __name__,
    homes={
        "Audit": "audit",
        "Checkpoint": "checkpoint",
        "ChooseXla": "choose_xla",
        "DeviceStats": "device_stats",
        "HangWatch": "hang_watch",
        "Monitors": "monitors",
        "NotFinite": "not_finite",
        "OnFirstWorker": "first_worker",
        "Progress": "progress",
        "RunRecord": "run_record",
        "ThroughputLogger": "throughput",
        "default": "default_callbacks",
    },
)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
