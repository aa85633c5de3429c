"""The trainer: what it builds, what feeds it, and what it compiles."""

import keras
import tensorflow as tf
from absl import logging
from keras.src.backend.tensorflow import trainer as trainer_module
from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)
from keras.src.random.seed_generator import global_seed_generator
from keras.src.trainers.epoch_iterator import EpochIterator

from kerasmgpu._keras import build, direct_calls, scope, unread_logs
from kerasmgpu._keras.scope import is_ours
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
        # `predict` is the one caller without targets.
        feeder = _Feeder(distribute_strategy, in_order="y" not in kwargs)
        original(self, feeder, *args, **kwargs)
        for_steps = getattr(self._distributed_dataset, "for_steps", None)
        if for_steps is not None:  # One that the user distributed.
            self._distributed_dataset = for_steps()
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


@seam(trainer_module, "reduce_per_replica")
def _reduce_per_replica(original, values, strategy, reduction):
    if is_ours(strategy) and strategy.num_workers > 1:
        # The strategy's `run` has made them values of the global batch.
        return values
    return original(values, strategy, reduction)


def _step_in_place(original, self, step_func):
    """Puts the step into the graph of its execution, not into one inside it.

    Keras makes a graph of the step and one that calls it, and every copy of
    every variable is an input of both: a sixth of the time to the first step.
    """
    inner = getattr(step_func, "python_function", None)
    strategy = self._distribute_strategy
    if inner is None or self.jit_compile or not is_ours(strategy):
        return original(self, step_func)

    def step(data):
        function = inner if tf.inside_function() else step_func
        return function(data)

    return original(self, step)


if hasattr(TensorFlowTrainer, "_autoconvert_optionals"):  # Since Keras 3.12.
    seam(TensorFlowTrainer, "_autoconvert_optionals")(_step_in_place)


@seam(TensorFlowTrainer, "_make_function")
def _make_function(original, self, step_function):
    strategy = self._distribute_strategy
    if not is_ours(strategy):
        return original(self, step_function)

    def make():
        function = _without_jit(original, self, step_function)
        direct_calls.make_direct(function)
        if strategy.num_workers == 1:
            return function
        return _step_by_step(function, self)

    if strategy.num_replicas_in_sync == 1:
        return make()
    return unread_logs.with_and_without_results(make, self, step_function)


def _step_by_step(function, model):
    """Several steps per execution without a loop inside the graph.

    TensorFlow hands collectives their keys when a graph is called, which fails
    for a function that is called in a loop of that graph ("You must feed a
    value for placeholder tensor").
    """

    def call(iterator):
        num_steps = model.steps_per_execution
        if num_steps == 1:
            return function(iterator)
        model.steps_per_execution, logs = 1, None
        try:
            for _ in range(num_steps):
                logs = function(iterator)
        except StopIteration:
            if logs is None:
                raise
        finally:
            model.steps_per_execution = num_steps
        return logs

    return call


@seam(TensorFlowTrainer, "make_predict_function")
def _make_predict_function(original, self, force=False):
    return _without_jit(original, self, force)


def _without_jit(make, model, *args):
    """Makes a step function that XLA leaves alone; its parts are compiled.

    With one replica there is nothing that XLA can't take: Keras compiles the
    whole step, as it does without a strategy.
    """
    strategy = model._distribute_strategy
    if not is_ours(strategy):
        return make(model, *args)
    # Unseeded draws use a variable that Keras makes at the first one. A graph
    # that makes variables when it is first called can't hold collectives.
    global_seed_generator()
    if not model.jit_compile:
        _say_that_xla_is_off(model)
        return make(model, *args)
    if strategy.num_replicas_in_sync == 1:
        return make(model, *args)
    model.jit_compile = False
    try:
        return make(model, *args)
    finally:
        model.jit_compile = True


def _say_that_xla_is_off(model):
    """One line where plain Keras would have turned XLA on: on GPUs."""
    devices = model._distribute_strategy.extended.worker_devices
    if any("GPU" in device for device in devices):
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: model %r trains without XLA, which is what Keras makes "
            "of jit_compile='auto' under a strategy. jit_compile=True compiles "
            "it; callbacks.ChooseXla() measures which is faster.",
            1,
            model.name,
        )


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
