"""The two trainer classes that `keras.Model` inherits from.

They are found by their modules, since Keras 3.16 renames the classes
(`TensorFlowTrainer` to `Trainer`, `Trainer` to `BaseTrainer`) and keeps modules
and methods.
"""

import keras


def _of(module: str) -> type:
    (trainer,) = {
        base for base in keras.Model.__mro__ if base.__module__ == module
    }
    return trainer


TensorFlowTrainer = _of("keras.src.backend.tensorflow.trainer")
Trainer = _of("keras.src.trainers.trainer")
