"""What feeds the steps of a model, and which functions are steps."""

from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)
from keras.src.trainers.epoch_iterator import EpochIterator

from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam


@seam(TFEpochIterator, "__init__")
def _init_iterator(original, self, distribute_strategy=None, *args, **kwargs):
    if is_ours(distribute_strategy):
        # `predict` is the one caller without targets.
        feeder = _Feeder(distribute_strategy, in_order="y" not in kwargs)
        original(self, feeder, *args, **kwargs)
    else:
        original(self, distribute_strategy, *args, **kwargs)


@seam(EpochIterator, "reset")
def _reset(original, self):
    original(self)
    dataset = getattr(self, "_distributed_dataset", None)
    if hasattr(dataset, "has_own_length"):
        # Not that of the whole data set; known once an epoch has ended.
        self._num_batches = None


class _Feeder:
    """What an epoch iterator asks of its strategy, for the steps of a model."""

    def __init__(self, strategy, in_order):
        self._strategy, self._in_order = strategy, in_order

    def experimental_distribute_dataset(self, dataset):
        return self._strategy.dataset_for_steps(dataset, self._in_order)


def trainer_of(function):
    """The model whose step `function` is, or `None` for any other function.

    A model is whatever has Keras's trainer mixed in, `keras.Model` or not.
    """
    function = getattr(function, "python_function", function)
    seen = 0
    while hasattr(function, "__wrapped__") and seen < 10:
        function, seen = function.__wrapped__, seen + 1
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, TensorFlowTrainer) else None
