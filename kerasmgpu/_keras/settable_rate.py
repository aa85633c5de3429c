"""Sets the learning rate of an optimizer step by step, schedule or not."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras


@contextlib.contextmanager
def settable_rate(model: keras.Model) -> Iterator[Callable[[float], Any]]:
    """Context in which a variable is the learning rate; yields its `assign`.

    A schedule is replaced by a variable meanwhile; then the training step is
    traced anew, and the one from before is put back at the end.

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
    # Not the variable itself, which would become one of the optimizer's.
    optimizer._learning_rate, model.train_function = lambda: rate, None
    try:
        yield rate.assign
    finally:
        optimizer._learning_rate, model.train_function = own, function
