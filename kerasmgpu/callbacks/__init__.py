"""Callbacks for `keras.Model.fit`."""

from kerasmgpu.callbacks.throughput import ThroughputLogger

__all__ = ["ThroughputLogger"]
