"""The iterator of an epoch's steps: what feeds it, and who is told between them.

Keras makes a `TFEpochIterator` wherever steps are run; `EpochSteps` takes its
place. Under one of our strategies a data set reaches the steps in the way the
strategy chooses, and no more iterators are made than are read. A callback that
watches `fit` (`fit.EpochWatcher`) is called between steps.

Where `fit` has no `steps_per_epoch`, Keras makes two iterators per epoch: one
to read, and another at its end, which it throws away. One that fetches to
devices takes TensorFlow tens of milliseconds per device to make: functions are
traced and prepared for each. All that the second one does to the data is to
draw the seeds of `shuffle`, and a plain iterator of the same data set draws
them too. So the order is that of one device, to the bit.

One iterator for all epochs is not made: random operations of a data set's
functions start anew with each iterator, on one device as here, and a generator
or `PyDataset` must begin its epoch when Keras says so.
"""

import weakref

import tensorflow as tf
from keras.src.backend.tensorflow import trainer as trainer_module

from kerasmgpu._keras import background, fit, pipelines, unread_logs
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import replaces


@replaces(trainer_module, "TFEpochIterator")
class EpochSteps(trainer_module.TFEpochIterator):
    """Keras's iterator, whose arguments these are."""

    def __init__(self, distribute_strategy=None, *args, **kwargs):
        running = fit.innermost()
        # The first one that `fit` makes is that of the training data.
        is_for_fit = running is not None and running.iterator is None
        self._is_ours = is_ours(distribute_strategy)
        if self._is_ours:
            feeder = _Feeder(
                distribute_strategy,
                # `predict` is the one caller without targets.
                in_order="y" not in kwargs,
                most=_most_batches(kwargs, running if is_for_fit else None),
            )
            super().__init__(feeder, *args, **kwargs)
            self.source = feeder.source(self)
        else:
            super().__init__(distribute_strategy, *args, **kwargs)
            self.source = None
        if is_for_fit:
            running.iterator = self

    def reset(self):
        super().reset()
        if hasattr(self._distributed_dataset, "has_own_length"):
            # Not that of the whole data set; known once an epoch has ended.
            self._num_batches = None

    def _enumerate_iterator(self):
        steps = super()._enumerate_iterator()
        return steps if self.source is None else self.source.enumerate(steps)

    def _get_iterator(self):
        if self.source is None:
            return super()._get_iterator()
        if self.steps_per_epoch:  # Keras has one iterator for all epochs.
            return self.source.iterator_to_read()
        return self.source.iterator()

    def __iter__(self):
        if self._is_ours:  # Workers ask each other: all must come by here.
            unread_logs.look_again()
        watched = self._watched()
        if watched is None:
            return super().__iter__()
        watched.watcher.before_epoch(watched)
        steps = super().__iter__()
        watched.watcher.at_epoch_start(watched)
        return steps

    def __next__(self):
        # At the end of the epoch this raises: what follows the last step is
        # `after_epoch`.
        item = super().__next__()
        unread_logs.comes_next(item[-1])
        watched = self._watched()
        if watched is not None:
            watched.advance(item[0])
        return item

    def _watched(self):
        """The innermost `fit`, if it is watched and reads these steps."""
        running = fit.innermost()
        if running is None or running.watcher is None:
            return None
        return running if running.iterator is self else None


def _most_batches(arguments, running):
    """How many batches are read of one iterator, `None`: all that there are.

    Args:
        arguments: Those of the `EpochSteps`, by name.
        running: The `fit.Fit` whose epochs it feeds, if it does.
    """
    if not arguments.get("steps_per_epoch"):
        return None
    per_execution = arguments.get("steps_per_execution") or 1
    executions = -(-arguments["steps_per_epoch"] // per_execution)
    return executions * per_execution * (running.num_epochs if running else 1)


class _Feeder:
    """What an epoch iterator asks of its strategy, for the steps of a model.

    Batches that go to devices are read ahead. Where that matters to who reads
    the data next (a generator goes on where it was, the next pass of a
    repeated `shuffle` draws its seed), not further than on one device: there
    TensorFlow prefetches one.
    """

    def __init__(self, strategy, in_order, most):
        self._strategy, self._in_order, self._most = strategy, in_order, most
        self._dataset = None

    def experimental_distribute_dataset(self, dataset):
        self._dataset = limited = dataset
        if (
            self._most is not None
            and isinstance(dataset, tf.data.Dataset)
            and not pipelines.making_iterators_suffices(dataset)
        ):
            limited = dataset.take(self._most + 1)
        feeding = self._strategy.dataset_for_steps(limited, self._in_order)
        return dataset if feeding is limited else feeding

    def source(self, steps):
        """What gives an `EpochSteps` its iterators, `None`: Keras does.

        Workers with files of their own, and data sets that the user
        distributed, are fed in other ways.
        """
        distributed = steps._distributed_dataset
        if isinstance(self._dataset, tf.data.Dataset) and (
            distributed is self._dataset
            or hasattr(distributed, "batch_specification")
        ):
            return _Source(steps, self._dataset)
        return None


class _Source:
    """What gives the steps of an epoch their iterators.

    Args:
        steps: The `EpochSteps` of a model in our scope.
        dataset: `tf.data.Dataset` of global batches that feeds it.
    """

    def __init__(self, steps, dataset):
        # Weak, for a cycle would keep the data after `fit`.
        self._steps = weakref.ref(steps)
        self._dataset = dataset
        self._draws_seeds = pipelines.making_iterators_matters(dataset)
        # Python code of the user's must not run once the epoch is over.
        self._runs_python = pipelines.runs_python(dataset)
        self._in_front = False

    def enumerate(self, steps):
        """Passes on the steps of an epoch, in front of which one is read."""
        self._in_front = True
        yield from steps

    def iterator(self):
        """The iterator that is asked for now, to read or to throw away."""
        if self._in_front:
            self._in_front = False
            return self.iterator_to_read()
        return iter(self._dataset if self._draws_seeds else ())

    def iterator_to_read(self):
        """A new iterator, which nobody has to wait for in the end."""
        dataset = self._steps()._distributed_dataset
        iterator = iter(dataset)
        if hasattr(dataset, "batch_specification"):
            iterator.batch_specification = dataset.batch_specification
        if not self._runs_python:
            background.free(iterator)
        return iterator

    def pass_epoch(self):
        """Draws the seeds that Keras's two iterators of an epoch draw."""
        if self._draws_seeds:
            for _ in range(2):
                iter(self._dataset)
