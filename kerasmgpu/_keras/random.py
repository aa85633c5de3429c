"""Random numbers: every row draws what it would draw on one device."""

import tensorflow as tf
from keras.src.backend.tensorflow import random as tensorflow_random

from kerasmgpu._keras.seams import seam
from kerasmgpu.step import randomness
from kerasmgpu.step.replica import current


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
