"""Variables that can be made before a step is traced are made before.

A trace that makes variables is made twice, as by `tf.function`: code may do
other things the first time. What Keras makes for a model whose layers are built
already (the optimizer's variables and the metrics') needs no trace.
"""

import contextlib

import keras
import tensorflow as tf
from keras.src.backend import compute_output_spec
from keras.src.models.functional import Functional, unpack_singleton

from kerasmgpu._keras.scope import is_ours


def build(model, specification, trains=True):
    """Makes the optimizer's and the metrics' variables of a built model.

    Args:
        model: Compiled `keras.Model`.
        specification: Nest of `tf.TypeSpec`s, of a batch `(x, y,
            sample_weight)` as `fit` takes it.
        trains: Whether the step that follows needs the optimizer.
    """
    if not all(layer.built for layer in model._flatten_layers()):
        return
    optimizer = model.optimizer
    if trains and optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    if _is_functional(model) and not _has_metrics(model):
        # They may do what can be done in a step only.
        strategy = model.distribute_strategy
        as_in_a_step = contextlib.nullcontext
        if is_ours(strategy):
            as_in_a_step = strategy.extended.one_device
        with as_in_a_step():
            _build_metrics(model, specification)


def _is_functional(model):
    """Whether Keras knows what a model returns without calling it."""
    if not isinstance(getattr(model, "_functional", model), Functional):
        return False
    return type(model).call in (Functional.call, keras.Sequential.call)


def _has_metrics(model):
    parts = (model._compile_metrics, model._compile_loss)
    return all(part is None or part.built for part in parts)


def _build_metrics(model, specification):
    batch = symbolic(specification)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if None in tf.nest.flatten(x):
        return  # Keras knows it of complete inputs only.
    # A call gives the one item of a list by itself.
    y_pred = unpack_singleton(model.compute_output_spec(x))
    metrics, loss = model._compile_metrics, model._compile_loss
    if metrics is not None and not metrics.built:
        compute_output_spec(
            model.compute_metrics, x, y, y_pred, sample_weight=sample_weight
        )
    if loss is not None and not loss.built:
        compute_output_spec(
            model._compute_loss,
            x,
            y,
            y_pred,
            sample_weight=sample_weight,
            training=False,
        )


def symbolic(specification):
    """Keras tensors that stand for the leaves of any batch."""
    return tf.nest.map_structure(_symbolic, specification)


def _symbolic(leaf):
    if isinstance(leaf, tf.OptionalSpec):
        return None
    if not isinstance(leaf, tf.TypeSpec):
        return leaf
    dtype = keras.backend.standardize_dtype(leaf.dtype)
    shape = list(leaf.shape)
    if shape:
        shape[0] = None
    is_sparse = isinstance(leaf, tf.SparseTensorSpec)
    return keras.KerasTensor(shape, dtype, sparse=is_sparse)
