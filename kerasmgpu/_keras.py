"""Everything that reaches past the public API of Keras and TensorFlow.

Keras calls `tf.distribute` at a handful of seams. `install()` puts a
dispatcher at each seam: inside a step of one of our strategies it calls the
exact piece in `kerasmgpu/step/`, everywhere else the original, so nothing
changes for models that were not built in our scope. Each seam below says what
it is for; `SEAMS` lists the private names, which `tests/test_keras_seams.py`
checks one by one. Checked on Keras 3.10 to 3.15 with TensorFlow 2.18 to 2.21.
"""

import functools
import warnings

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow import nn as tensorflow_nn
from keras.src.backend.tensorflow import random as tensorflow_random
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.backend.tensorflow.trainer import (
    TensorFlowTrainer,
    TFEpochIterator,
)
from keras.src.layers.normalization.batch_normalization import (
    BatchNormalization,
)
from keras.src.losses import loss as loss_module
from keras.src.losses.losses import LossFunctionWrapper
from keras.src.metrics.reduction_metrics import MeanMetricWrapper
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.compile_utils import MetricsList
from keras.src.trainers.trainer import Trainer

from kerasmgpu.errors import InputError
from kerasmgpu.step import (
    build,
    compilation,
    empty_shares,
    gradients,
    loss,
    metrics,
    normalization,
    randomness,
)
from kerasmgpu.step.replica import current, is_updating

KERAS_RANGE = ((3, 10), (3, 15))
"""First and last minor version of Keras on which the seams were checked."""

SEAMS = []
"""`(owner, name)` of every private or patched name, in order."""

_installed = False


def seam(owner, name):
    """Replaces `owner.name` by a dispatcher, once `install()` is called.

    The decorated function gets the original as its first argument.
    """

    def register(dispatcher):
        SEAMS.append((owner, name))
        dispatchers.append((owner, name, dispatcher))
        return dispatcher

    return register


dispatchers = []


def install():
    """Connects the exact step to Keras; does nothing the second time."""
    global _installed
    if _installed:
        return
    _require_tensorflow_backend()
    _warn_outside_range()
    for owner, name, dispatcher in dispatchers:
        original = getattr(owner, name)
        setattr(owner, name, _dispatching(original, dispatcher))
    for name in ("_losses", "_loss_ids"):
        setattr(keras.layers.Layer, name, _PerReplicaAttribute(name))
    _installed = True


def _dispatching(original, dispatcher):
    """What stands in for `original`: a property, function or method."""
    if isinstance(original, property):
        return property(lambda self: dispatcher(original.fget, self))

    @functools.wraps(original)
    def call(*args, **kwargs):
        return dispatcher(original, *args, **kwargs)

    return call


def _require_tensorflow_backend():
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            "kerasmgpu needs Keras's TensorFlow backend. Received: "
            f"{keras.backend.backend()!r}; set the environment variable "
            "KERAS_BACKEND=tensorflow before Keras is imported."
        )


def _warn_outside_range():
    version = tuple(int(part) for part in keras.version().split(".")[:2])
    first, last = KERAS_RANGE
    if not first <= version <= last:
        warnings.warn(
            f"kerasmgpu was checked on Keras {first[0]}.{first[1]} to "
            f"{last[0]}.{last[1]}, and this is {keras.version()}: run "
            "`python -m kerasmgpu.verify` on your model before you rely on "
            "its results.",
            stacklevel=3,
        )


# Losses. `Loss.__call__` ends in `reduce_weighted_values`, which divides by
# the local count; `scale_…` and `unscale_loss_for_distribution` then convert
# between that and a mean of means. With exact losses both are the identity.


def is_exact_here():
    """The current replica where local values must be made global, or `None`."""
    replica = current()
    return None if replica is None or replica.sees_global_batch else replica


@seam(loss_module, "reduce_values")
def _reduce_values(
    original, values, sample_weight=None, reduction="sum_over_batch_size"
):
    replica = is_exact_here()
    if replica is None or reduction in (None, "none") or values.shape.rank == 0:
        return original(values, sample_weight, reduction)
    return loss.reduce(values, sample_weight, reduction, replica)


@seam(loss_module, "apply_mask")
def _apply_mask(original, sample_weight, mask, dtype, reduction):
    replica = is_exact_here()
    scaled = mask is not None and reduction in ("mean", "sum_over_batch_size")
    if replica is None or not scaled:
        return original(sample_weight, mask, dtype, reduction)
    # With reduction "sum" Keras merges the mask as plain zeros and ones; the
    # factor total / valid, of the global batch, comes on top.
    merged = original(sample_weight, mask, dtype, "sum")
    return merged * loss.mask_scale(tf.cast(mask, dtype), _mask_epsilon())


@functools.lru_cache(maxsize=None)
def _mask_epsilon():
    """What Keras adds to the number of valid positions: 0 since 3.12."""
    with tf.init_scope():
        one = tf.ones([1], "float64")
        weight = loss_module.apply_mask.__wrapped__(None, one, "float64", "mean")
        return float(1 / weight[0] - 1)


@seam(loss_module, "scale_loss_for_distribution")
def _scale_loss(original, value):
    return original(value) if current() is None else value


@seam(loss_module, "unscale_loss_for_distribution")
def _unscale_loss(original, value):
    return original(value) if current() is None else value


@seam(keras.losses.Loss, "__call__")
def _call_loss(original, self, y_true, y_pred, sample_weight=None):
    replica = is_exact_here()
    if replica is None or is_row_wise_loss(self, y_pred):
        return original(self, y_true, y_pred, sample_weight)
    loss.announce_gather("loss", self.name)
    mask = getattr(y_pred, "_keras_mask", None)
    y_true, y_pred, sample_weight, mask = loss.gather(
        (y_true, y_pred, sample_weight, mask), replica
    )
    if mask is not None:
        y_pred._keras_mask = mask
    replica.has_exact_loss = True
    with replica.global_batch():
        return original(self, y_true, y_pred, sample_weight)


_WHOLE_BATCH_LOSSES = {"Dice", "Tversky", "Circle"}
"""Losses of Keras that are no sums over rows."""


def is_row_wise_loss(loss_object, y_pred):
    """Whether each value of a loss depends on one row of the batch only.

    True for Keras's own losses that say so in their formula, and for those
    whose author set `row_wise = True` on the class, object or function.
    """
    function = getattr(loss_object, "fn", None)
    if getattr(loss_object, "row_wise", False) or getattr(
        function, "row_wise", False
    ):
        return True
    if not _is_kerass_own(type(loss_object)):
        return False
    if type(loss_object).__name__ in _WHOLE_BATCH_LOSSES:
        return False
    if isinstance(loss_object, LossFunctionWrapper):
        axis = getattr(loss_object, "_fn_kwargs", {}).get("axis", -1)
        if axis is None or axis in (0, -len(getattr(y_pred, "shape", ()))):
            return False
        name = getattr(function, "__name__", "")
        return _is_kerass_own(function) and name not in {
            "dice",
            "tversky",
            "circle",
        }
    return True


def _is_kerass_own(thing):
    return getattr(thing, "__module__", "").startswith("keras.src.")


# `model.losses`: terms of `add_loss` and activity regularisers come from the
# replica's own rows, terms of weight regularisers are the same on all.


@seam(keras.layers.Layer, "_get_own_losses")
def _get_own_losses(original, self):
    own = original(self)
    replica = is_exact_here()
    if replica is None:
        return own
    return [loss.additional(term, True, replica) for term in own]


@seam(keras.layers.Layer, "_get_regularization_losses")
def _get_regularization_losses(original, self):
    own = original(self)
    replica = current()
    if replica is None:
        return own
    return [loss.additional(term, False, replica) for term in own]


class _PerReplicaAttribute:
    """An attribute of layers that each replica's thread has for itself.

    The replicas' threads call the same layer objects, take turns at every
    collective, and would mix their `add_loss` terms in one list.
    """

    def __init__(self, name):
        self.name = name

    def __get__(self, layer, owner=None):
        if layer is None:
            return self
        replica = current()
        if replica is not None:
            key = (id(layer), self.name)
            values = replica.layer_attributes
            if key not in values:
                values[key] = set() if self.name == "_loss_ids" else []
            return values[key]
        try:
            return layer.__dict__[self.name]
        except KeyError:
            raise AttributeError(self.name) from None

    def __set__(self, layer, value):
        layer.__dict__[self.name] = value


# A model's own `compute_loss` may take any mean over what it is given: give it
# the global batch.


@seam(Trainer, "_compute_loss")
def _compute_loss(
    original, self, x=None, y=None, y_pred=None, sample_weight=None, training=True
):
    replica = is_exact_here()
    overridden = type(self).compute_loss is not Trainer.compute_loss
    if replica is None or not overridden:
        return original(self, x, y, y_pred, sample_weight, training)
    loss.announce_gather("compute_loss of model", self.name)
    additional = self.losses
    x, y, y_pred, sample_weight = loss.gather(
        (x, y, y_pred, sample_weight), replica
    )
    replica.has_exact_loss = True
    replica.layer_attributes[id(self), "losses"] = additional
    with replica.global_batch():
        return original(self, x, y, y_pred, sample_weight, training)


@seam(keras.layers.Layer, "losses")
def _losses(original, self):
    replica = current()
    if replica is not None and replica.sees_global_batch:
        already_exact = replica.layer_attributes.get((id(self), "losses"))
        if already_exact is not None:
            return already_exact
    return original(self)


@seam(TensorFlowTrainer, "_aggregate_additional_loss")
def _aggregate_additional_loss(original, self, term):
    if current() is None:
        return original(self, term)
    return Trainer._aggregate_additional_loss(self, term)


# Metrics that are no sums over rows see the global batch on every replica.


@seam(MetricsList, "update_state")
def _update_metrics(original, self, y_true, y_pred, sample_weight=None):
    replica = is_exact_here()
    if replica is None:
        return original(self, y_true, y_pred, sample_weight)
    whole = [metric for metric in self.metrics if not is_row_wise_metric(metric)]
    for metric in self.metrics:
        if metric not in whole:
            metric.update_state(y_true, y_pred, sample_weight=sample_weight)
    if whole:
        gathered = loss.gather((y_true, y_pred, sample_weight), replica)
        with replica.global_batch():
            for metric in whole:
                loss.announce_gather("metric", metric.name)
                metrics.read_first_replica(metric)
                metric.update_state(*gathered[:2], sample_weight=gathered[2])


@seam(keras.Variable, "assign")
def _assign(original, self, value):
    replica = current()
    if replica is not None:
        replica.assigned.add(id(self))
    return original(self, value)


def is_row_wise_metric(metric):
    """Whether a metric's states are sums of what each row contributes."""
    function = getattr(metric, "_fn", None)
    if getattr(metric, "row_wise", False) or getattr(function, "row_wise", False):
        return True
    if not _is_kerass_own(type(metric)):
        return False
    return not isinstance(metric, MeanMetricWrapper) or _is_kerass_own(function)


# Batch normalisation takes the moments of the global batch.


@seam(BatchNormalization, "_moments")
def _moments(original, self, inputs, mask):
    replica = current()
    if replica is None:
        return original(self, inputs, mask)
    if replica.batch_norm == "per_replica" and not self.synchronized:
        return original(self, inputs, mask)
    return normalization.moments(inputs, mask, self._reduction_axes, replica)


def is_alike(layer, batch_norm):
    """Whether a layer's state is the same on all replicas by construction."""
    return isinstance(layer, BatchNormalization) and (
        batch_norm == "global" or layer.synchronized
    )


# Random numbers.


def _seam_of_draw(name):
    @seam(tensorflow_random, name)
    def draw(original, shape, *args, **kwargs):
        return _draw(original, shape, args, kwargs)


def _draw(original, shape, args, kwargs):
    replica = current()
    if replica is None:
        return original(shape, *args, **kwargs)
    if replica.random_mode == "per_replica":
        return original(shape, *args, **kwargs)
    found = randomness.global_shape(shape, replica)
    if found is None:
        return original(shape, *args, **kwargs)
    shape, cut = found
    return cut(original(shape, *args, **kwargs))


for _name in ("normal", "uniform", "truncated_normal", "randint"):
    _seam_of_draw(_name)


@seam(tensorflow_random, "dropout")
def _dropout(original, inputs, rate, noise_shape=None, seed=None):
    replica = current()
    if replica is None or rate in (0.0, 1.0) or replica.random_mode != "global":
        return original(inputs, rate, noise_shape, seed)
    shape = tensorflow_random._get_concrete_noise_shape(inputs, noise_shape)
    found = randomness.global_shape(shape, replica)
    if found is None:
        return original(inputs, rate, noise_shape, seed)
    shape, cut = found
    # The mask that one device would draw: ones dropped out and scaled.
    mask = original(tf.ones(shape, inputs.dtype), rate, None, seed)
    return inputs * cut(mask)


@seam(tensorflow_random, "draw_seed")
def _draw_seed(original, seed):
    replica = current()
    if replica is None:
        return original(seed)
    # The state advances once the batch is there, not when the data set ends.
    with tf.control_dependencies([replica.rows]):
        if seed is None:
            # The global generator belongs to the program, not to the
            # strategy's scope: it is advanced once, for all replicas.
            drawn = tf.distribute.get_replica_context().merge_call(
                lambda strategy: original(None)
            )
        else:
            drawn = original(seed)
    if replica.random_mode == "per_replica":
        drawn = randomness.fold_in(drawn, replica)
    return drawn


# Convolutions and pooling of no rows.


def _seam_of_kernel(name):
    @seam(tensorflow_nn, name)
    def kernel(original, inputs, *args, **kwargs):
        replica = current()
        if replica is None or not replica.on_cpu:
            return original(inputs, *args, **kwargs)
        return empty_shares.call(
            lambda rows: original(rows, *args, **kwargs), inputs
        )


for _name in (
    "conv",
    "depthwise_conv",
    "separable_conv",
    "conv_transpose",
    "max_pool",
    "average_pool",
):
    _seam_of_kernel(_name)


# Optimizers: gradients meet once, then Keras's code for a single device runs
# on each replica's copies. `_backend_…` and the like are TensorFlow versions
# that would enter `tf.distribute` again.


@seam(BaseOptimizer, "apply")
def _apply(original, self, grads, trainable_variables=None):
    return _apply_exactly(original, self, grads, trainable_variables)


@seam(keras.optimizers.LossScaleOptimizer, "apply")
def _apply_scaled(original, self, grads, trainable_variables=None):
    return _apply_exactly(original, self, grads, trainable_variables)


def _apply_exactly(original, self, grads, trainable_variables):
    replica = current()
    if replica is None or is_updating():
        return original(self, grads, trainable_variables)
    return gradients.reduce_and_apply(
        original, self, grads, trainable_variables, replica
    )


@seam(keras.optimizers.LossScaleOptimizer, "_tf_apply")
def _tf_apply(original, self, grads, trainable_variables=None):
    if is_updating():
        return self._common_apply(grads, trainable_variables)
    return original(self, grads, trainable_variables)


def _seam_of_update(name):
    @seam(TFOptimizer, name)
    def update(original, self, *args):
        if is_updating():
            return getattr(BaseOptimizer, name)(self, *args)
        return original(self, *args)


for _name in (
    "_backend_update_step",
    "_apply_weight_decay",
    "_overwrite_model_variables_with_average_value",
    "_backend_increment_gradient_accumulators",
):
    _seam_of_update(_name)


# The trainer: what it builds, and what it compiles.


@seam(TensorFlowTrainer, "_maybe_symbolic_build")
def _maybe_symbolic_build(original, self, iterator=None, data_batch=None):
    strategy = self._distribute_strategy
    if not is_ours(strategy):
        return original(self, iterator, data_batch)
    if iterator is None:
        specification = data_batch
    else:
        specification = strategy.batch_specification(
            iterator._distributed_dataset
        )
    with strategy.scope():
        build.build(self, specification)


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
        if name == "self" and isinstance(
            cell.cell_contents, TensorFlowTrainer
        ):
            return cell.cell_contents
    return None


_THREAD_STATE = (
    "dtype_policy",
    "custom_objects_scope_dict",
    "flash_attention",
    "traceback_filtering",
    "global_random_seed",
)
"""Global settings of Keras that a replica's thread must see as its parent."""


def thread_state():
    """Keras's thread-local settings of this thread, for a replica's thread."""
    return {
        name: value
        for name in _THREAD_STATE
        if (value := global_state.get_global_attribute(name)) is not None
    }


def set_thread_state(state):
    """Gives this thread the settings that `thread_state()` returned."""
    for name, value in state.items():
        global_state.set_global_attribute(name, value)
