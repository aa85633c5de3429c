"""Variables are created from the specification of the data, never from data.

Stock Keras takes a batch out of the user's data set to learn its shapes: a
generator loses that batch, a shuffled data set its order, and averaging the
replicas' shares of it crashes when they differ in size or are no numbers.
"""

import keras
import tensorflow as tf
from keras.src.backend import compute_output_spec


def symbolic_batch(specification):
    """Keras tensors that stand for one batch of any size.

    Args:
        specification: Nest of `tf.TypeSpec` (a data set's `element_spec`), of
            tensors or of arrays.

    Returns:
        The same nest with a `keras.KerasTensor` for every leaf that has rows,
        and `None` for those that hold no data.
    """
    return tf.nest.map_structure(_symbolic_leaf, specification)


def _symbolic_leaf(leaf):
    if leaf is None or isinstance(leaf, tf.OptionalSpec):
        return None
    dtype = keras.backend.standardize_dtype(leaf.dtype)
    shape = list(leaf.shape)
    if shape:
        shape[0] = None
    if isinstance(leaf, (tf.SparseTensorSpec, tf.SparseTensor)):
        return keras.KerasTensor(shape, dtype, sparse=True)
    return keras.KerasTensor(shape, dtype)


def needs_build(model):
    """Whether the model, its losses, metrics or optimizer lack variables."""
    parts = [model._compile_metrics, model._compile_loss, model.optimizer]
    layers = model._flatten_layers()
    return not all(layer.built for layer in layers) or any(
        part is not None and not part.built for part in parts
    )


def build(model, specification):
    """Creates every variable that a step of `model` uses.

    Args:
        model: Compiled `keras.Model`.
        specification: See `symbolic_batch`; of a batch `(x, y,
            sample_weight)` as `fit` takes it.
    """
    if not needs_build(model):
        return
    batch = symbolic_batch(specification)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    y_pred = compute_output_spec(model, x, training=False)
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
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    model._post_build()
