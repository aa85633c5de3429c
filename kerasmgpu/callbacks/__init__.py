"""Callbacks for `keras.Model.fit`."""

from kerasmgpu.callbacks.checkpoint import Checkpoint
from kerasmgpu.callbacks.choose_xla import ChooseXla
from kerasmgpu.callbacks.device_stats import DeviceStats
from kerasmgpu.callbacks.first_worker import OnFirstWorker
from kerasmgpu.callbacks.monitors import Monitors
from kerasmgpu.callbacks.progress import Progress
from kerasmgpu.callbacks.throughput import ThroughputLogger

__all__ = [
    "Checkpoint",
    "ChooseXla",
    "DeviceStats",
    "Monitors",
    "OnFirstWorker",
    "Progress",
    "ThroughputLogger",
]
