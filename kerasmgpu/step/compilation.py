"""`jit_compile=True`: XLA compiles each replica's forward and backward pass.

Keras compiles the whole distributed step, which XLA refuses because the
replicas' collectives are in it. Here the model's call is compiled, on every
replica, and with it its gradient; collectives and the update stay outside.
"""

import tensorflow as tf
from absl import logging


def call(function, model, args, kwargs, replica):
    """Calls `function(model, *args, **kwargs)` as one XLA computation.

    A model with a collective inside its call (batch normalisation over the
    global batch, unseeded random numbers) can't be compiled as a whole; it
    runs uncompiled, and a log line says so.
    """

    @tf.function(jit_compile=True, autograph=False)
    def compiled():
        with replica.compiling():
            outputs = function(model, *args, **kwargs)
        masks = [
            getattr(value, "_keras_mask", None)
            for value in tf.nest.flatten(outputs)
        ]
        return outputs, _added_losses(replica), masks

    try:
        outputs, losses, masks = compiled()
    except RuntimeError as error:
        if "merge_call" not in str(error):
            raise
        logging.log_first_n(
            logging.WARNING,
            "kerasmgpu: model %r has a collective in its call (batch "
            "normalisation over the global batch, or unseeded random numbers) "
            "and runs without XLA although jit_compile=True.",
            1,
            model.name,
        )
        replica.layer_attributes.clear()
        return function(model, *args, **kwargs)
    replica.layer_attributes.update(losses)
    for value, mask in zip(tf.nest.flatten(outputs), masks):
        if mask is not None:
            value._keras_mask = mask
    return outputs


def _added_losses(replica):
    """The `add_loss` terms of each layer, as a nest that may leave a graph."""
    return {
        key: list(terms)
        for key, terms in replica.layer_attributes.items()
        if key[1] == "_losses" and terms
    }
