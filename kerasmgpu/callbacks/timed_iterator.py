"""Watches requests for batches inside the compiled step.

Keras takes a batch from the iterator inside its compiled training function,
where no callback hook can see it. `Probe.timed` wraps the iterator: TensorFlow
operations that the probe adds run before and after each request for a batch.
`InputProbe` records the time before and after the request (`tf.timestamp`), and
the batch's rows. These are a few small operations per step, and nothing waits
for them.

`tf.TypeSpec`'s underscored methods below are its protocol for subclasses.
"""

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kerasmgpu.engine.feeds import num_rows

# The `TypeSpec` of an iterator is part of the trace-cache key and must compare
# by value: it holds the probe's number instead of the probe.
_probes = weakref.WeakValueDictionary()
_numbers = itertools.count()

_TAKEN_AT_ONCE = 16
"""Records that each iteration of the loop in `InputProbe._take` takes out."""


class Probe:
    """Base class: adds operations around each request for a batch.

    Attributes:
        traces: Integer, number of times that a request for a batch was traced.
        number: Integer, unique to the probe.
    """

    def __init__(self) -> None:
        self.traces = 0
        self.number = next(_numbers)
        _probes[self.number] = self

    def timed(self, iterator: Any) -> Any:
        """Wraps an iterator; returns anything else unchanged."""
        kinds = (tf.data.Iterator, tf.distribute.DistributedIterator)
        if isinstance(iterator, kinds):
            return TimedIterator(iterator, self)
        return iterator

    def request(self, get: Callable[[], Any]) -> tuple[Any, Any]:
        """Requests a batch by `get()`; returns it, and data for `note`."""
        return get(), None

    def note(self, batch: Any, asked: Any) -> Any:
        """Adds operations that run once the batch has arrived.

        Returns:
            The batch, possibly with control dependencies on the operations;
            `None` to use the batch unchanged.
        """
        raise NotImplementedError


class InputProbe(Probe):
    """Records the rows and the wait of every batch of its timed iterators."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        super().__init__()
        self.strategy = strategy
        # Without it, `latest` could peek at batches that `drain` has just taken
        # out, and would wait for new ones.
        self._lock = threading.Lock()
        # Buffers are global by name, so the name must be unique to this probe.
        self._buffer = {
            "dtypes": [tf.int64, tf.float64, tf.float64],
            "shared_name": f"kerasmgpu_input_probe_{self.number}",
        }

    def drain(self) -> list[tuple[int, float]]:
        """Takes out and returns the batches recorded since the last call.

        Returns:
            List of `(rows, seconds)`: rows of all replicas of this worker,
            and the seconds for which the request was pending.
        """
        with self._lock, tf.device("CPU:0"):
            size = int(tf.raw_ops.StageSize(**self._buffer))
            rounds, rest = divmod(size, _TAKEN_AT_ONCE)
            taken = []
            if rounds:
                columns = self._take(tf.constant(rounds))
                taken = list(zip(*(column.numpy() for column in columns)))
            taken += [tf.raw_ops.Unstage(**self._buffer) for _ in range(rest)]
        return _of_batches(taken)

    def latest(self, count: int) -> list[tuple[int, float]]:
        """Returns `(rows, seconds)` of the last batches, and keeps the records.

        At most `count` are returned. A thread may call it while steps run; no
        step waits for it.
        """
        with self._lock, tf.device("CPU:0"):
            size = int(tf.raw_ops.StageSize(**self._buffer))
            kept = [
                tf.raw_ops.StagePeek(index=index, **self._buffer)
                for index in range(max(0, size - count), size)
            ]
        return _of_batches(kept)

    @tf.function(autograph=False)
    def _take(self, rounds: tf.Tensor) -> list[tf.Tensor]:
        # A compiled loop, since eager calls would take as long as the steps;
        # unrolled, since a round takes ten times as long as `Unstage`.
        def take(_: tf.Tensor) -> tuple[tf.Tensor, ...]:
            batches: list[Any] = []
            for _ in range(_TAKEN_AT_ONCE):
                with tf.control_dependencies(sum(batches[-1:], [])):
                    batches.append(list(tf.raw_ops.Unstage(**self._buffer)))
            return tuple(tf.stack(column) for column in zip(*batches))

        with tf.device("CPU:0"):
            columns = tf.map_fn(
                take,
                tf.range(rounds),
                fn_output_signature=tuple(
                    tf.TensorSpec([_TAKEN_AT_ONCE], dtype)
                    for dtype in self._buffer["dtypes"]
                ),
                parallel_iterations=1,
            )
            return [tf.reshape(column, [-1]) for column in columns]

    def request(self, get: Callable[[], Any]) -> tuple[Any, tf.Tensor]:
        """Requests a batch by `get()`; returns it and the request's time."""
        with tf.device("CPU:0"):
            asked = tf.timestamp()
        with tf.control_dependencies([asked]):
            return get(), asked

    def note(self, batch: Any, asked: tf.Tensor) -> None:
        """Records the rows of a batch, and the times around its request."""
        shares = [
            share
            for leaf in tf.nest.flatten(batch)
            for share in self._shares(leaf)
        ]
        tensors = tf.nest.flatten(shares, expand_composites=True)
        with tf.device("CPU:0"):
            with tf.control_dependencies(tensors):
                got = tf.timestamp()
            # Each operation adds 1 to 2 microseconds to the step, so `drain`
            # subtracts the times. A queue would take twenty times as long: its
            # operations wake another thread.
            tf.raw_ops.Stage(
                values=[self._rows(batch), asked, got],
                shared_name=self._buffer["shared_name"],
            )

    def _shares(self, leaf: Any) -> list[Any]:
        """Returns the replicas' tensors of a leaf; none if it has no rows."""
        return [
            share
            for share in self.strategy.experimental_local_results(leaf)
            if tf.is_tensor(share) and share.shape.rank != 0
        ]

    def _rows(self, batch: Any) -> tf.Tensor:
        # Keras counts like this, too: rows of the first input that has any.
        for leaf in tf.nest.flatten(batch):
            shares = self._shares(leaf)
            if shares:
                rows = [num_rows(share, tf.int64) for share in shares]
                return tf.add_n(rows) if len(rows) > 1 else rows[0]
        return tf.constant(0, tf.int64)


def _of_batches(records: list[Any]) -> list[tuple[int, float]]:
    """Converts records of `InputProbe` to `(rows, seconds waited)`."""
    return [
        (int(rows), float(got) - float(asked)) for rows, asked, got in records
    ]


class TimedIterator(tf.data.Iterator):
    """Lets a probe watch an iterator's requests for a batch."""

    def __init__(self, iterator: Any, probe: Probe) -> None:
        self.iterator = iterator
        self._probe = probe
        # Made once, since every call of a compiled function reads it.
        self._spec = _TimedIteratorSpec(
            tf.type_spec_from_value(iterator), probe.number
        )

    @property
    def element_spec(self) -> Any:
        return self.iterator.element_spec

    def __iter__(self) -> "TimedIterator":
        return self

    def __next__(self) -> Any:
        try:
            return self.get_next()
        except tf.errors.OutOfRangeError:
            raise StopIteration from None

    def get_next(self) -> Any:
        batch, asked = self._request(self.iterator.get_next)
        noted = self._probe.note(batch, asked)
        return batch if noted is None else noted

    def get_next_as_optional(self) -> tf.experimental.Optional:
        batch, asked = self._request(self.iterator.get_next_as_optional)
        is_waited_for = False

        def note() -> bool:
            nonlocal is_waited_for
            noted = self._probe.note(batch.get_value(), asked)
            is_waited_for = noted is not None
            return True

        done = tf.cond(batch.has_value(), note, lambda: False)
        if not is_waited_for:
            return batch

        def after(tensor: tf.Tensor) -> tf.Tensor:
            with tf.device(tensor.device), tf.control_dependencies([done]):
                return tf.identity(tensor)

        return tf.nest.map_structure(after, batch, expand_composites=True)

    def _request(self, get: Callable[[], Any]) -> tuple[Any, Any]:
        if not tf.executing_eagerly():
            self._probe.traces += 1  # Python runs here only during tracing.
        return self._probe.request(get)

    @property
    def _type_spec(self) -> tf.TypeSpec:
        return self._spec


class _TimedIteratorSpec(tf.TypeSpec):
    """Trace-cache key of a timed iterator."""

    def __init__(self, iterator_spec: tf.TypeSpec, probe_number: int) -> None:
        self._iterator_spec = iterator_spec
        self._probe_number = probe_number
        # Cached: TensorFlow would compute it anew in every call.
        self._hash = hash((iterator_spec, probe_number))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    @property
    def value_type(self) -> type:
        return TimedIterator

    @property
    def _component_specs(self) -> tf.TypeSpec:
        return self._iterator_spec

    def _serialize(self) -> tuple[tf.TypeSpec, int]:
        return self._iterator_spec, self._probe_number

    def _to_components(self, value: Any) -> Any:
        return value.iterator

    def _from_components(self, components: Any) -> TimedIterator:
        return TimedIterator(components, _probes[self._probe_number])
