"""Small gradients travel together: one tensor for each type.

Handing a tensor from device to device costs the same few microseconds for one
number as for thousands. Large tensors travel alone, since packing copies them.
"""

import math

import tensorflow as tf

LARGEST_PACKED_BYTES = 1 << 16
"""Gradients of more bytes than this are not copied into a pack."""

BYTES_PER_REDUCTION = 25 << 20
"""Once a reduction has this many bytes, the gradients after it get another.

The default of PyTorch's `DistributedDataParallel` (Li et al., "PyTorch
Distributed", VLDB 2020).
"""


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
        self._types = [gradients[group[0]].dtype for group in self._groups]
        self._bytes = [
            sum(_num_bytes(gradients[place]) or 0 for place in group)
            for group in self._groups
        ]
        self._shapes = [
            gradient.shape.as_list() if _is_small(gradient) else None
            for gradient in gradients
        ]

    def num_bytes(self):
        """Bytes of all packs, without what is known only in the step."""
        return sum(self._bytes)

    def reductions(self):
        """Which packs are summed together, in the order of their sums.

        The backward pass has the gradients of the last layers first, so these
        come first: they can travel while it is busy with the other layers.
        The pack of the small gradients has to wait for the first layer's.

        Returns:
            List of lists of indices of packs of one type.
        """
        is_whole = [len(places) == 1 for places in self._groups]
        order = sorted(
            range(len(self._groups)),
            key=lambda i: (is_whole[i], self._groups[i]),
            reverse=True,
        )
        done, open_ones = [], {}
        for i in order:
            calls = open_ones.setdefault(self._types[i], [])
            calls.append(i)
            if sum(self._bytes[j] for j in calls) >= BYTES_PER_REDUCTION:
                done.append(open_ones.pop(self._types[i]))
        return done + list(open_ones.values())

    def pack(self, gradients):
        """Returns the list of what is to be summed."""
        return [
            gradients[places[0]]
            if len(places) == 1
            else _concatenate(
                [
                    _stack([gradients[i] for i in same])
                    for same in self._blocks(places)
                ]
            )
            for places in self._groups
        ]

    def unpack(self, sums):
        """Returns the sums in the order of the gradients."""
        gradients = [None] * len(self._shapes)
        for places, total in zip(self._groups, sums):
            if len(places) == 1:
                gradients[places[0]] = total
                continue
            blocks = self._blocks(places)
            shapes = [[len(same), *self._shapes[same[0]]] for same in blocks]
            parts = tf.split(total, [math.prod(shape) for shape in shapes])
            for same, part, shape in zip(blocks, parts, shapes):
                for i, one in zip(same, tf.unstack(tf.reshape(part, shape))):
                    gradients[i] = one
        return gradients

    def squares(self, sums):
        """Squares of the sums that travelled together.

        Args:
            sums: As for `unpack`.

        Returns:
            List of squares in the order of the gradients; `None` for those
            that travelled alone.
        """
        return self.unpack(
            [
                tf.square(total) if len(places) > 1 else None
                for places, total in zip(self._groups, sums)
            ]
        )

    def _blocks(self, places):
        """Places of gradients of the same shape, which need one operation."""
        blocks = {}
        for i in places:
            blocks.setdefault(tuple(self._shapes[i]), []).append(i)
        return list(blocks.values())


def _stack(gradients):
    """Gradients of one shape as a vector."""
    return tf.reshape(
        tf.stack(gradients) if len(gradients) > 1 else gradients[0], [-1]
    )


def _concatenate(vectors):
    return tf.concat(vectors, 0) if len(vectors) > 1 else vectors[0]


def _is_small(gradient):
    if isinstance(gradient, tf.IndexedSlices):
        return False
    size = _num_bytes(gradient)
    return size is not None and size <= LARGEST_PACKED_BYTES


def _num_bytes(gradient):
    """Bytes of a tensor or of a sparse gradient's rows; `None` if unknown."""
    values = getattr(gradient, "values", gradient)
    size = values.shape.num_elements()
    return None if size is None else size * values.dtype.size
