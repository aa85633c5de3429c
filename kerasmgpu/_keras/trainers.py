"""Keras's trainers: the two classes that make a model of a layer.

They are taken from `keras.Model` by their modules: their names are others from
Keras 3.16 on (`Trainer` and `BaseTrainer` for what were `TensorFlowTrainer` and
`Trainer`), while modules and methods have stayed.
"""

import keras


def _of(module):
    (trainer,) = {
        base for base in keras.Model.__mro__ if base.__module__ == module
    }
    return trainer


TensorFlowTrainer = _of("keras.src.backend.tensorflow.trainer")
Trainer = _of("keras.src.trainers.trainer")
