"""What each layer makes of the first batch, in training mode."""

import keras
import numpy as np
import tensorflow as tf


def layer_outputs(model, dataset):
    """Outputs of the layers of a model for a batch, as its step sees them.

    The layers are called with `training=True`, through `predict` of a model
    that shares them, so that under a strategy each replica calls them on its
    share and the outputs are put together in the order of the rows.

    Args:
        model: `keras.Model`. One that Keras has no graph of (a subclass with
            its own `call`) yields no outputs.
        dataset: `tf.data.Dataset` of one global batch.

    Returns:
        List of layer names in the model's order and a list of arrays
        `[rows, …]`, one for each leaf of an output.
    """
    names, tensors = _graph(model)
    if not tensors:
        return [], []
    # In the structure to which data are matched; a `Sequential` has none.
    is_sequential = isinstance(model, keras.Sequential)
    inputs = model.inputs if is_sequential else model.input
    outputs = InTrainingMode(inputs, tensors).predict(dataset, verbose=0)
    outputs = [outputs] if len(tensors) == 1 else outputs
    return names, [np.asarray(output) for output in outputs]


class InTrainingMode(keras.Model):
    """A model that predicts what its layers compute while training."""

    def predict_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return self(x, training=True)


def _graph(model):
    """Names of the layers of a functional model, and their output tensors."""
    names, tensors = [], []
    if not hasattr(model, "inputs") or not model.inputs:
        return names, tensors
    for layer in model.layers:
        if isinstance(layer, (keras.Model, keras.layers.InputLayer)):
            # The graph of a nested model is another one than the model's.
            continue
        for tensor in tf.nest.flatten(layer.output):
            if _is_computed_from(model.inputs, tensor):
                names.append(layer.name)
                tensors.append(tensor)
    return names, tensors


def _is_computed_from(inputs, tensor):
    """Whether a layer's first output lies in the graph from `inputs`."""
    try:
        keras.Model(inputs, tensor)
    except ValueError:  # The layer was first called on something else.
        return False
    return True
