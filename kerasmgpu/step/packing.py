"""Small gradients travel together: one tensor for each type.

Handing a tensor from device to device costs the same few microseconds for one
number as for thousands. Large tensors travel alone, since packing copies them.
"""

import math

import tensorflow as tf

LARGEST_PACKED_BYTES = 1 << 16
"""Gradients of more bytes than this are not copied into a pack."""


class Packing:
    """Which of a list of gradients go into which pack.

    All replicas have gradients of the same shapes, and so the same packing.

    Args:
        gradients: List of dense tensors and `tf.IndexedSlices`.
    """

    def __init__(self, gradients):
        groups = {}
        for place, gradient in enumerate(gradients):
            # What travels alone is a group of its own.
            key = gradient.dtype.name if _is_small(gradient) else place
            groups.setdefault(key, []).append(place)
        self._groups = list(groups.values())
        self._shapes = [
            gradient.shape.as_list() if _is_small(gradient) else None
            for gradient in gradients
        ]

    def pack(self, gradients):
        """Returns the list of what is to be summed."""
        packs = []
        for places in self._groups:
            if len(places) == 1:
                packs.append(gradients[places[0]])
            else:
                flat = [tf.reshape(gradients[i], [-1]) for i in places]
                packs.append(tf.concat(flat, 0))
        return packs

    def unpack(self, sums):
        """Returns the sums in the order of the gradients."""
        gradients = [None] * len(self._shapes)
        for places, total in zip(self._groups, sums):
            if len(places) == 1:
                gradients[places[0]] = total
                continue
            shapes = [self._shapes[i] for i in places]
            parts = tf.split(total, [math.prod(shape) for shape in shapes])
            for i, part, shape in zip(places, parts, shapes):
                gradients[i] = tf.reshape(part, shape)
        return gradients


def _is_small(gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return False
    size = gradient.shape.num_elements()
    return size is not None and (
        size * gradient.dtype.size <= LARGEST_PACKED_BYTES
    )
