"""Keeps the last batches of a step's iterator, by reference."""

from typing import Any

import tensorflow as tf

from kerasmgpu.callbacks.timed_iterator import Probe
from kerasmgpu.partitioner.runtime.execution import is_empty
from kerasmgpu.partitioner.runtime.function import Shares, joined

NUM_KEPT = 2
"""Two: a loop of several steps requests the next batch while a step runs."""


class KeptBatches(Probe):
    """Keeps the last `NUM_KEPT` batches, numbered from 0 in each `fit`.

    TensorFlow's staging areas hold references to tensors; nothing is copied.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self.strategy = strategy
        self._structure: Any = None
        self._counter = self._buffer("counter", [tf.int64])
        self._areas: list[tuple[str, dict[str, Any]]] = []

    def reset(self) -> None:
        """Drops all batches and numbers the next one 0, for a new `fit`."""
        with tf.device("CPU:0"):
            tf.raw_ops.StageClear(**self._counter)
            _stage(self._counter, [tf.constant(0, tf.int64)])
        self._areas.clear()

    def timed(self, iterator: Any) -> Any:
        wrapped = super().timed(iterator)
        if wrapped is not iterator and not self._areas:
            self._prime(iterator.element_spec)
        return wrapped

    def note(self, batch: Any, asked: None) -> Any:
        self._structure = tf.nest.map_structure(lambda _: 0, batch)
        shares = _shares(self.strategy, tf.nest.flatten(batch))
        with tf.device("CPU:0"):
            there = [tensor for share in shares for tensor in share]
            with tf.control_dependencies(there):
                (number,) = tf.raw_ops.Unstage(**self._counter)
                staged = _stage(self._counter, [number + 1])
        kept = []
        for share, (device, area) in zip(shares, self._areas):
            with tf.device(device), tf.control_dependencies(_only(staged)):
                kept.append(_stage(area, [number, *share]))
                with tf.control_dependencies(_only(kept[-1])):
                    tf.raw_ops.Unstage(**area)
        if tf.executing_eagerly():
            return batch

        def after(tensor: tf.Tensor) -> tf.Tensor:
            with tf.device(tensor.device), tf.control_dependencies(kept):
                return tf.identity(tensor)

        # Without this wait, a failing step could end before its batch is kept.
        return tf.nest.map_structure(after, batch, expand_composites=True)

    def take(self) -> list[tuple[int, Any]]:
        """Takes out the kept batches: `(number, this worker's rows)`, sorted.

        Afterwards no batch is kept until `reset`.
        """
        found: dict[int, list[list[tf.Tensor]]] = {}
        for device, area in self._areas:
            with tf.device(device):
                for _ in range(int(tf.raw_ops.StageSize(**area))):
                    number, *tensors = tf.raw_ops.Unstage(**area)
                    found.setdefault(int(number), []).append(tensors)
        return [
            (number, self._whole(shares))
            for number, shares in sorted(found.items())
            if number >= 0
        ]

    def _prime(self, specification: Any) -> None:
        """Creates a staging area per share, with `NUM_KEPT` empty batches.

        A step then puts its batch into the areas and takes the oldest one out.
        """
        leaves = tf.nest.flatten(specification)
        num_shares = max(
            (len(getattr(leaf, "_value_specs", [0])) for leaf in leaves),
            default=1,
        )
        self._leaves = [_kind(leaf) for leaf in leaves]
        dtypes = [tf.int64] + [
            part.dtype
            for leaf in self._leaves
            if leaf is not None
            for part in tf.nest.flatten(leaf, expand_composites=True)
        ]
        devices = ["CPU:0"]
        if num_shares > 1:
            devices = list(self.strategy.extended.worker_devices)
        for number, device in enumerate(devices):
            area = self._buffer(f"share_{number}", dtypes)
            self._areas.append((device, area))
            with tf.device(device):
                tf.raw_ops.StageClear(**area)
                empty = [tf.zeros([], dtype) for dtype in dtypes[1:]]
                for _ in range(NUM_KEPT):
                    _stage(area, [tf.constant(-1, tf.int64), *empty])

    def _whole(self, shares: list[list[tf.Tensor]]) -> Any:
        """Returns the batch whose rows the shares hold, in its structure."""
        leaves: list[Any] = []
        remaining = [iter(share) for share in shares]
        for kind in self._leaves:
            if kind is None:
                leaves.append(None)
                continue
            count = len(tf.nest.flatten(kind, expand_composites=True))
            values = [
                tf.nest.pack_sequence_as(
                    kind,
                    [next(share) for _ in range(count)],
                    expand_composites=True,
                )
                for share in remaining
            ]
            leaves.append(_joined(values))
        return tf.nest.pack_sequence_as(self._structure, leaves)

    def _buffer(self, name: str, dtypes: list[tf.DType]) -> dict[str, Any]:
        # Areas are global by name.
        return {
            "dtypes": dtypes,
            "shared_name": f"kerasmgpu_kept_{self.number}_{name}",
        }


def _kind(specification: Any) -> Any:
    """Returns the `TypeSpec` of a leaf's share; `None` if it has no tensors."""
    first = getattr(specification, "_value_specs", [specification])[0]
    return None if is_empty(first) else first


def _shares(
    strategy: tf.distribute.Strategy, leaves: list[Any]
) -> list[list[tf.Tensor]]:
    """Returns the tensors of each local share; a whole batch is one share."""
    columns = [
        strategy.experimental_local_results(leaf)
        for leaf in leaves
        if leaf is not None and not isinstance(leaf, tf.experimental.Optional)
    ]
    return [
        tf.nest.flatten(list(share), expand_composites=True)
        for share in zip(*columns)
    ]


def _joined(values: list[Any]) -> Any:
    if len(values) == 1 or (tf.is_tensor(values[0]) and not values[0].shape):
        return values[0]
    whole = joined(values)
    return tf.concat(whole.values, 0) if isinstance(whole, Shares) else whole


def _stage(area: dict[str, Any], values: list[tf.Tensor]) -> Any:
    return tf.raw_ops.Stage(values=values, shared_name=area["shared_name"])


def _only(operation: Any) -> list[Any]:
    """Returns control dependencies on an operation; none if it ran eagerly."""
    return [] if operation is None else [operation]
