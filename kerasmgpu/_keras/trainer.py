"""The trainer: what it builds, what feeds it, and what it compiles."""

import keras
from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)

from kerasmgpu._keras import build, scope
from kerasmgpu._keras.seams import seam
from kerasmgpu.step import compilation
from kerasmgpu.step.replica import current


@seam(TensorFlowTrainer, "_maybe_symbolic_build")
def _maybe_symbolic_build(original, self, iterator=None, data_batch=None):
    strategy = self._distribute_strategy
    if not is_ours(strategy):
        scope.check(self)
        return original(self, iterator, data_batch)
    if iterator is None:
        specification = data_batch
    else:
        specification = strategy.batch_specification(
            iterator._distributed_dataset
        )
    scope.check(self)
    with strategy.scope():
        build.build(self, specification)
    scope.check(self)


@seam(TFEpochIterator, "__init__")
def _init_iterator(original, self, distribute_strategy=None, *args, **kwargs):
    if is_ours(distribute_strategy):
        distribute_strategy = _Feeder(distribute_strategy)
    original(self, distribute_strategy, *args, **kwargs)


class _Feeder:
    """What an epoch iterator asks of its strategy, for the steps of a model."""

    def __init__(self, strategy):
        self.experimental_distribute_dataset = strategy.dataset_for_steps


@seam(TensorFlowTrainer, "_make_function")
def _make_function(original, self, *args):
    return _without_jit(original, self, *args)


@seam(TensorFlowTrainer, "make_predict_function")
def _make_predict_function(original, self, force=False):
    return _without_jit(original, self, force)


def _without_jit(make, model, *args):
    """Makes a step function that XLA leaves alone; its parts are compiled."""
    if not is_ours(model._distribute_strategy) or not model.jit_compile:
        return make(model, *args)
    model.jit_compile = False
    try:
        return make(model, *args)
    finally:
        model.jit_compile = True


@seam(keras.Model, "__call__")
def _call_model(original, self, *args, **kwargs):
    replica = current()
    if replica is None or replica.compiled_model is not self:
        return original(self, *args, **kwargs)
    replica.compiled_model = None
    try:
        return compilation.call(original, self, args, kwargs, replica)
    finally:
        replica.compiled_model = self


def is_ours(strategy):
    """Whether a strategy trains exactly, i.e. is one of kerasmgpu's."""
    return hasattr(strategy, "batch_specification")


def trainer_of(function):
    """The model whose step `function` is, or `None` for any other function.

    A model is whatever has Keras's trainer mixed in, `keras.Model` or not.
    Keras hands its strategy bound methods (`train_step`, `test_step`) and, for
    `predict`, closures of its trainer module over the model.
    """
    function = getattr(function, "python_function", function)
    seen = 0
    while hasattr(function, "__wrapped__") and seen < 10:
        function, seen = function.__wrapped__, seen + 1
    owner = getattr(function, "__self__", None)
    if isinstance(owner, TensorFlowTrainer):
        return owner
    if getattr(function, "__module__", None) != TensorFlowTrainer.__module__:
        return None
    for name, cell in zip(
        function.__code__.co_freevars, function.__closure__ or ()
    ):
        if name == "self" and isinstance(cell.cell_contents, TensorFlowTrainer):
            return cell.cell_contents
    return None
