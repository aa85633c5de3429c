"""Made-up data of the programs, of Keras's default type."""

import keras
import numpy as np


def generator(seed=0):
    """A source of random arrays."""
    return np.random.default_rng(seed)


def reals(*shape, seed=0):
    """Normal numbers of Keras's default type."""
    return generator(seed).normal(size=shape).astype(keras.config.floatx())


def images(*shape, seed=0):
    """Pixels from 0 to 1 of Keras's default type."""
    return generator(seed).uniform(size=shape).astype(keras.config.floatx())


def integers(below, *shape, seed=0, lowest=0):
    """Integers from `lowest` up to but without `below`."""
    return generator(seed).integers(lowest, below, size=shape).astype("int32")


def sentences(vocabulary, count, length, seed=0):
    """Tokens, 0 behind the end of each sentence; some have one token only."""
    tokens = integers(vocabulary, count, length, seed=seed, lowest=1)
    lengths = integers(length + 1, count, 1, seed=seed + 1, lowest=1)
    return np.where(np.arange(length) < lengths, tokens, 0).astype("int32")
