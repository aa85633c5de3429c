"""The epoch iterator: feeds batches to steps and calls `fit`'s watcher.

`EpochSteps` replaces Keras's `TFEpochIterator`, which every loop over steps
uses. Under our strategies, the strategy chooses how a data set is fed, and only
the iterators that are read are made. A watcher of `fit` (`fit.EpochWatcher`) is
called between steps.

Without `steps_per_epoch`, Keras makes two iterators per epoch: one that it
reads, and another at the epoch's end, which it discards. An iterator that
prefetches to devices takes tens of milliseconds per device to make, since
TensorFlow traces functions for each. The only effect of the discarded one is to
draw the seeds of `shuffle`, which a plain iterator of the same data set also
draws. So the order is that of one device, bit for bit.

One iterator for all epochs would change results: random operations in a data
set's functions restart with each iterator, on one device as here, and a
generator or `PyDataset` must begin its epoch when Keras begins one.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import trainer as trainer_module

from kerasmgpu._keras import fit, unread_logs
from kerasmgpu.engine import fit_clock, freed_iterators, pipelines
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.engine.seams import replaces


@replaces(trainer_module, "TFEpochIterator")
class EpochSteps(trainer_module.TFEpochIterator):
    """Keras's epoch iterator, with the same arguments.

    Attributes:
        steps_asked: Integer, steps of the epoch that have been asked for.
        steps_done: Integer, steps of the epoch before the last execution.
    """

    steps_asked = steps_done = 0

    def __init__(
        self, distribute_strategy: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        running = fit.innermost()
        # The first iterator that `fit` makes is that of the training data.
        is_for_fit = running is not None and running.iterator is None
        self._is_ours = is_ours(distribute_strategy)
        if self._is_ours:
            feeder = _Feeder(
                distribute_strategy,
                # Only `predict` passes no targets.
                in_order="y" not in kwargs,
                most=_most_batches(kwargs, running if is_for_fit else None),
            )
            super().__init__(feeder, *args, **kwargs)
            feeder.set_batch_size(self._batch_size(kwargs.get("x")))
            # A data set that the user distributed is fed as it is.
            self.feed: Feed | None = feeder.feed or Feed(
                self._distributed_dataset
            )
            self.source = feeder.source()
        else:
            super().__init__(distribute_strategy, *args, **kwargs)
            self.feed, self.source = None, None
        if running is not None and is_for_fit:
            running.iterator = self

    def _batch_size(self, x: Any) -> int | None:
        """Returns the rows of Keras's batches of `x`; `None` if unknown."""
        datasets = (tf.data.Dataset, tf.distribute.DistributedDataset)
        # The adapter of a data set assumes that its elements have a `shape`.
        if isinstance(x, datasets):
            return None
        adapter = self.data_adapter
        only = adapter.partial_batch_size if adapter.num_batches == 1 else None
        return only or adapter.batch_size

    def reset(self) -> None:
        super().reset()
        if self.feed is not None and self.feed.has_own_length:
            # A worker's own length is not the data set's, which is known once
            # an epoch has ended.
            self._num_batches = None

    def _enumerate_iterator(self) -> Iterator[Any]:
        steps = super()._enumerate_iterator()
        return steps if self.source is None else self.source.enumerate(steps)

    def _get_iterator(self) -> Any:
        if self.source is None:
            return super()._get_iterator()
        if self.steps_per_epoch:  # Keras has one iterator for all epochs.
            return self.source.iterator_to_read()
        return self.source.iterator()

    def __iter__(self) -> Any:
        if self._is_ours:  # A collective: every worker must call it.
            unread_logs.look_again()
        self.steps_asked = self.steps_done = 0
        running = fit.innermost()
        if running is not None and running.iterator is self:
            running.clock.switch(fit_clock.INPUT)
        watched = self._watched()
        if watched is None:
            return super().__iter__()
        with watched.clock.within(fit_clock.CHECKPOINTS):
            watched.watcher.before_epoch(watched)
        steps = super().__iter__()
        with watched.clock.within(fit_clock.CHECKPOINTS):
            watched.watcher.at_epoch_start(watched)
        return steps

    def __next__(self) -> Any:
        # Raises at the end of the epoch, so the last step is followed by
        # `after_epoch` instead of `after_step`.
        self.steps_done = self.steps_asked
        item = super().__next__()
        self.steps_asked += self.steps_per_execution
        unread_logs.comes_next(item[-1])
        watched = self._watched()
        if watched is not None:
            before = watched.clock.switch(fit_clock.CHECKPOINTS)
            watched.advance(item[0])
            watched.clock.switch(before)
        return item

    def _watched(self) -> fit.Fit | None:
        """Returns the watched `Fit` that reads this iterator, or `None`."""
        running = fit.innermost()
        if running is None or running.watcher is None:
            return None
        return running if running.iterator is self else None


def feed_of(model: Any, batch: tuple[Any, ...], rows: int) -> Any:
    """Returns the `Feed` that `fit` has for arrays of one batch.

    Args:
        model: `keras.Model` under one of our strategies.
        batch: `(x, y, sample_weight)`.
    """
    x, y, sample_weight = batch
    steps = EpochSteps(
        model.distribute_strategy,
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=rows,
        steps_per_execution=model.steps_per_execution,
    )
    return steps.feed


def _most_batches(
    arguments: dict[str, Any], running: "fit.Fit | None"
) -> int | None:
    """Returns the most batches read from one iterator; `None`: no limit."""
    if not arguments.get("steps_per_epoch"):
        return None
    per_execution = arguments.get("steps_per_execution") or 1
    executions = -(-arguments["steps_per_epoch"] // per_execution)
    return executions * per_execution * (running.num_epochs if running else 1)


class _Feeder:
    """Stands in for the strategy in Keras's epoch iterator.

    Batches are prefetched to devices. For stateful data sets (a generator
    continues where it stopped, a repeated `shuffle` draws its next seed) it
    reads at most one batch ahead, as TensorFlow does on one device.
    """

    def __init__(
        self, strategy: ExactStrategy, in_order: bool, most: int | None
    ) -> None:
        self._strategy, self._in_order, self._most = strategy, in_order, most
        self._dataset: Any = None
        self.feed: Feed | None = None

    def experimental_distribute_dataset(self, dataset: tf.data.Dataset) -> Any:
        self._dataset = limited = dataset
        if (
            self._most is not None
            and isinstance(dataset, tf.data.Dataset)
            and not pipelines.making_iterators_suffices(dataset)
        ):
            limited = dataset.take(self._most + 1)
        feed = self._strategy.dataset_for_steps(limited, self._in_order)
        self.feed = Feed(dataset) if feed.dataset is limited else feed
        return self.feed.dataset

    def set_batch_size(self, known: int | None) -> None:
        """Adds the number of rows of a batch to the feed, if it is known."""
        if self.feed is not None:
            rows = known or pipelines.batch_size(self._dataset)
            self.feed = dataclasses.replace(self.feed, batch_size=rows)

    def source(self) -> "_Source | None":
        """Returns the `_Source` of the feed, or `None` to use Keras's.

        `None` where workers read different files, or where the user
        distributed the data set.
        """
        if self.feed is None or self.feed.has_own_length:
            return None
        if isinstance(self._dataset, tf.data.Dataset):
            return _Source(self.feed, self._dataset)
        return None


class _Source:
    """Creates each epoch's iterator."""

    def __init__(self, feed: Feed, dataset: tf.data.Dataset) -> None:
        self._feed = feed
        self._dataset = dataset
        self._draws_seeds = pipelines.making_iterators_matters(dataset)
        # The user's Python code must not run after the end of the epoch.
        self._runs_python = pipelines.runs_python(dataset)
        self._in_front = False

    def enumerate(self, steps: Iterator[Any]) -> Iterator[Any]:
        """Yields an epoch's steps; marks the next `iterator()` as the one to read."""
        self._in_front = True
        yield from steps

    def iterator(self) -> Any:
        """Returns the iterator to read; if none is due, one for Keras to discard."""
        if self._in_front:
            self._in_front = False
            return self.iterator_to_read()
        return iter(self._dataset if self._draws_seeds else ())

    def iterator_to_read(self) -> Any:
        """Returns a new iterator; a thread frees it unless it runs Python."""
        iterator = self._feed.iterator()
        if self._runs_python:
            freed_iterators.free_before_exit(iterator)
        else:
            freed_iterators.free(iterator)
        return iterator

    def pass_epoch(self) -> None:
        """Draws the seeds that Keras's two iterators of an epoch draw."""
        if self._draws_seeds:
            for _ in range(2):
                iter(self._dataset)
