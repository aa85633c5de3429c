"""Layers on devices of their own: model parallelism for Keras models.

`on_device(layer, "GPU:1")` keeps a layer's weights and all its work, forward
and backward, on one device. The rest of the model stays where TensorFlow puts
it; tensors are copied where the two meet. `place_updates(optimizer)` does the
same for the updates of the weights, and `measure_copies(function)` counts the
copies and says what share of the time they take.
"""

from kerasmgpu.placement.copies import measure_copies
from kerasmgpu.placement.layers import OnDevice, on_device, without
from kerasmgpu.placement.updates import place_updates

__all__ = [
    "OnDevice",
    "measure_copies",
    "on_device",
    "place_updates",
    "without",
]
