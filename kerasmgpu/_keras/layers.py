"""Layers: their `add_loss` terms, batch normalisation, kernels of no rows."""

import keras
from keras.src.backend.tensorflow import nn as tensorflow_nn
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.layers.normalization.batch_normalization import (
    BatchNormalization,
)
from keras.src.trainers.trainer import Trainer

from kerasmgpu._keras.losses import where_values_are_local
from kerasmgpu._keras.seams import attribute, seam
from kerasmgpu.step import empty_shares, loss, normalization
from kerasmgpu.step.replica import current

# `model.losses`: terms of `add_loss` and activity regularisers come from the
# replica's own rows, terms of weight regularisers are the same on all.


@seam(keras.layers.Layer, "_get_own_losses")
def _get_own_losses(original, self):
    own = original(self)
    replica = where_values_are_local()
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


class PerReplicaAttribute:
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


for _name in ("_losses", "_loss_ids"):
    attribute(keras.layers.Layer, _name, PerReplicaAttribute(_name))


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


# Convolutions and pooling of no rows.


def _seam_of_kernel(name):
    @seam(tensorflow_nn, name)
    def kernel(original, inputs, *args, **kwargs):
        replica = current()
        if replica is None or not replica.on_cpu or replica.is_compiling:
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
