"""Callbacks for `keras.Model.fit`."""

from kerasmgpu import _import_on_use
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

_import_on_use(__name__)

__all__ = [
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
