"""Layers on chosen devices: model parallelism for Keras models.

`on_device(layer, "GPU:1")` keeps a layer's weights, forward pass and backward
pass on one device. The rest of the model stays where TensorFlow puts it;
tensors are copied between devices. `place_updates(optimizer)` runs each
weight's update on the weight's device, and `measure_copies(function)` counts
the copies and gives their share of the time. `make_logical_cpus(2)` makes
logical CPU devices where there is no GPU.
"""

from kerasmgpu import _import_on_use
from kerasmgpu.engine.devices import make_logical_cpus
from kerasmgpu.placement.copies import measure_copies
from kerasmgpu.placement.layers import OnDevice, on_device, without
from kerasmgpu.placement.placed_updates import place_updates

_import_on_use(__name__)

__all__ = [
    "OnDevice",
    "make_logical_cpus",
    "measure_copies",
    "on_device",
    "place_updates",
    "without",
]
