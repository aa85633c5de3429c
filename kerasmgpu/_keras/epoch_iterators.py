"""The iterators that Keras asks for: no more than it reads.

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
from keras.src.backend.tensorflow.trainer import TFEpochIterator
from keras.src.trainers.epoch_iterator import EpochIterator

from kerasmgpu._keras import background, pipelines
from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam


class EpochSource:
    """What gives an epoch iterator of Keras its iterators.

    Args:
        epoch_iterator: The `TFEpochIterator` of a model in our scope.
        dataset: `tf.data.Dataset` of global batches that feeds it.
    """

    def __init__(self, epoch_iterator, dataset):
        # Weak, for a cycle would keep the data after `fit`.
        self._owner = weakref.ref(epoch_iterator)
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
        iterator = iter(self._owner()._distributed_dataset)
        if not self._runs_python:
            background.free(iterator)
        return iterator

    def pass_epoch(self):
        """Draws the seeds that Keras's two iterators of an epoch draw."""
        if self._draws_seeds:
            for _ in range(2):
                iter(self._dataset)


@seam(EpochIterator, "__init__")
def _init_epoch_iterator(original, self, *args, **kwargs):
    original(self, *args, **kwargs)
    adapter = self.data_adapter
    make = adapter.get_tf_dataset

    def remembered():
        # The adapter would copy its arrays if it were asked again.
        del adapter.get_tf_dataset
        self._dataset_of_adapter = make()
        return self._dataset_of_adapter

    adapter.get_tf_dataset = remembered


@seam(EpochIterator, "_enumerate_iterator")
def _enumerate_iterator(original, self):
    source = getattr(self, "epoch_source", None)
    steps = original(self)
    return steps if source is None else source.enumerate(steps)


@seam(TFEpochIterator, "_get_iterator")
def _get_iterator(original, self):
    source = getattr(self, "epoch_source", None)
    if source is None:
        return original(self)
    if self.steps_per_epoch:  # Keras itself has one iterator for all epochs.
        return source.iterator_to_read()
    return source.iterator()


def attach(epoch_iterator):
    """Gives a new epoch iterator its source, if a strategy of ours feeds it."""
    feeder = epoch_iterator._distribute_strategy
    if not is_ours(getattr(feeder, "_strategy", None)):
        return
    dataset = epoch_iterator._dataset_of_adapter
    distributed = epoch_iterator._distributed_dataset
    # Workers with files of their own, and data sets that the user
    # distributed, are fed in other ways.
    if isinstance(dataset, tf.data.Dataset) and (
        distributed is dataset or hasattr(distributed, "is_made_for_steps")
    ):
        epoch_iterator.epoch_source = EpochSource(epoch_iterator, dataset)
