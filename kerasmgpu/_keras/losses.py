"""Losses: one value for the global batch instead of a mean of the replicas' means.

`Loss.__call__` ends in `reduce_weighted_values`, which divides by the local
count; `scale_…` and `unscale_loss_for_distribution` then convert between that
and a mean of means. With exact losses both are the identity. A model's own
`compute_loss` may take any mean over what it is given: it gets the global
batch.
"""

import functools

import keras
import tensorflow as tf
from keras.src.losses import loss as loss_module
from keras.src.losses.losses import LossFunctionWrapper
from keras.src.trainers.trainer import Trainer

from kerasmgpu._keras.seams import seam
from kerasmgpu.step import loss
from kerasmgpu.step.replica import current


def where_values_are_local():
    """The current replica where local values must be made global, or `None`."""
    replica = current()
    return None if replica is None or replica.sees_global_batch else replica


@seam(loss_module, "reduce_values")
def _reduce_values(
    original, values, sample_weight=None, reduction="sum_over_batch_size"
):
    replica = where_values_are_local()
    if replica is None or reduction in (None, "none") or values.shape.rank == 0:
        return original(values, sample_weight, reduction)
    return loss.reduce(values, sample_weight, reduction, replica)


@seam(loss_module, "apply_mask")
def _apply_mask(original, sample_weight, mask, dtype, reduction):
    replica = where_values_are_local()
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
        weight = loss_module.apply_mask.__wrapped__(
            None, one, "float64", "mean"
        )
        return float(1 / weight[0] - 1)


@seam(loss_module, "scale_loss_for_distribution")
def _scale_loss(original, value):
    return original(value) if current() is None else value


@seam(loss_module, "unscale_loss_for_distribution")
def _unscale_loss(original, value):
    return original(value) if current() is None else value


@seam(keras.losses.Loss, "__call__")
def _call_loss(original, self, y_true, y_pred, sample_weight=None):
    replica = where_values_are_local()
    if replica is None or is_row_wise_loss(self, y_pred):
        return original(self, y_true, y_pred, sample_weight)
    loss.announce_gather("loss", self.name)
    mask = getattr(y_pred, "_keras_mask", None)
    y_true, y_pred, sample_weight, mask = loss.gather(
        (y_true, y_pred, sample_weight, mask), replica
    )
    if mask is not None:
        y_pred._keras_mask = mask
    replica.has_keras_loss = True
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
    if not is_of_keras(type(loss_object)) or not has_features(y_pred):
        return False
    if type(loss_object).__name__ in _WHOLE_BATCH_LOSSES:
        return False
    if isinstance(loss_object, LossFunctionWrapper):
        axis = getattr(loss_object, "_fn_kwargs", {}).get("axis", -1)
        if axis is None or axis in (0, -len(y_pred.shape)):
            return False
        name = getattr(function, "__name__", "")
        return is_of_keras(function) and name not in {
            "dice",
            "tversky",
            "circle",
        }
    return True


def has_features(y_pred):
    """Whether predictions have an axis behind that of the rows.

    Keras's functions take the mean over the last axis: of predictions
    `[rows]`, that is the mean over the rows.
    """
    return all(
        len(getattr(leaf, "shape", ())) > 1 for leaf in tf.nest.flatten(y_pred)
    )


def is_of_keras(thing):
    """Whether a class or function is Keras's own."""
    return getattr(thing, "__module__", "").startswith("keras.src.")


@seam(Trainer, "_compute_loss")
def _compute_loss(
    original,
    self,
    x=None,
    y=None,
    y_pred=None,
    sample_weight=None,
    training=True,
):
    replica = where_values_are_local()
    overridden = type(self).compute_loss is not Trainer.compute_loss
    if replica is None or not overridden:
        return original(self, x, y, y_pred, sample_weight, training)
    loss.announce_gather("compute_loss of model", self.name)
    additional = self.losses
    x, y, y_pred, sample_weight = loss.gather(
        (x, y, y_pred, sample_weight), replica
    )
    replica.has_keras_loss = True
    replica.layer_attributes[id(self), "losses"] = additional
    with replica.global_batch():
        return original(self, x, y, y_pred, sample_weight, training)
