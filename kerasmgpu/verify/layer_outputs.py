"""Each layer's output for the first batch, in training mode."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


def layer_outputs(
    model: keras.Model, dataset: tf.data.Dataset
) -> tuple[list[str], list[np.ndarray]]:
    """Returns the outputs of a model's layers for a batch, as in training.

    The layers are called with `training=True`, through `predict` of a model
    that shares them, so that under a strategy each replica calls them on its
    share and the outputs are concatenated in the order of the rows.

    Args:
        model: `keras.Model`. A model without a Keras graph (a subclass with
            a custom `call`) yields no outputs.
        dataset: `tf.data.Dataset` of one global batch.

    Returns:
        List of layer names in the model's order and a list of arrays
        `[rows, …]`, one for each leaf of an output.
    """
    names, tensors = _graph(model)
    if not tensors:
        return [], []
    # `predict` matches data to the structure of `input`; a `Sequential` has
    # a list.
    is_sequential = isinstance(model, keras.Sequential)
    inputs = model.inputs if is_sequential else model.input
    outputs = InTrainingMode(inputs, tensors).predict(dataset, verbose=0)
    outputs = [outputs] if len(tensors) == 1 else outputs
    return names, [np.asarray(output) for output in outputs]


class InTrainingMode(keras.Model):
    """A model whose `predict` calls its layers with `training=True`."""

    def predict_step(self, data: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self(x, training=True)


def _graph(model: keras.Model) -> tuple[list[str], list[Any]]:
    """Returns a functional model's layer names and output tensors."""
    names: list[str] = []
    tensors: list[Any] = []
    if not hasattr(model, "inputs") or not model.inputs:
        return names, tensors
    for layer in model.layers:
        if isinstance(layer, (keras.Model, keras.layers.InputLayer)):
            # A nested model's output tensors are not in the model's graph.
            continue
        for tensor in tf.nest.flatten(layer.output):
            if _is_computed_from(model.inputs, tensor):
                names.append(layer.name)
                tensors.append(tensor)
    return names, tensors


def _is_computed_from(inputs: Any, tensor: Any) -> bool:
    """Whether a layer's first output lies in the graph from `inputs`."""
    try:
        keras.Model(inputs, tensor)
    except ValueError:  # The layer was first called on something else.
        return False
    return True
