"""Sets the learning rate of an optimizer step by step, schedule or not."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras


@contextlib.contextmanager
def settable_rate(model: keras.Model) -> Iterator[Callable[[float], Any]]:
    """Makes a variable the learning rate in a `with` block; yields `assign`.

    If it replaces a schedule, the training step is traced anew for it; at the
    end the schedule and the former step are restored.

    Args:
        model: Compiled `keras.Model` with one optimizer.
    """
    optimizer: Any = model.optimizer
    while hasattr(optimizer, "inner_optimizer"):  # Loss scaling.
        optimizer = optimizer.inner_optimizer
    own = optimizer._learning_rate
    if isinstance(own, keras.Variable):
        yield own.assign
        return
    with model.distribute_strategy.scope():
        rate = keras.Variable(
            0.0,
            trainable=False,
            dtype=keras.config.floatx(),
            name="learning_rate",
        )
    function = model.train_function
    # Not the variable itself, which the optimizer would track as its own.
    optimizer._learning_rate, model.train_function = lambda: rate, None
    try:
        yield rate.assign
    finally:
        optimizer._learning_rate, model.train_function = own, function
