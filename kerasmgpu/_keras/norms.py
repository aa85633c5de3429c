"""Computes L2 norms of gradients and updates inside a training step.

`FunctionWithNorms` is a second training function of a model: the same step,
whose logs also have the norms. It is traced as the program of one device, so
the norms are those of the whole gradients, also if replicas share the rows or
the variables. The model's own function, which runs all other steps, stays
untouched. Checked on Keras 3.10 and 3.15.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu._keras import step_hooks
from kerasmgpu._keras.patches import Patches
from kerasmgpu.errors import InputError

_NAME = "kerasmgpu_norms"  # In the logs of a step.

_Squares = dict[str, tf.Tensor]


class _Thread(threading.local):
    recorded: _Squares | None = None


_thread = _Thread()


def apply(
    original: Callable[..., Any],
    optimizer: Any,
    grads: Any,
    trainable_variables: Any,
) -> Any:
    """Calls `Optimizer.apply`; records the norms if a step asks for them.

    Args:
        trainable_variables: The variables to update; `None`: the optimizer's.
    """
    recorded = _thread.recorded
    if recorded is None:
        return original(optimizer, grads, trainable_variables)
    if trainable_variables is not None:
        trainable_variables = list(trainable_variables)
    grads = list(grads)
    variables = trainable_variables or optimizer._trainable_variables
    before = [tf.identity(variable.value) for variable in variables]
    _thread.recorded = None  # A loss-scaling optimizer applies its inner one.
    try:
        result = original(optimizer, grads, trainable_variables)
    finally:
        _thread.recorded = recorded
    scale = _loss_scale(optimizer)
    for variable, grad, old in zip(variables, grads, before):
        if grad is not None:
            update = _float(variable.value) - _float(old)
            recorded[variable.path] = tf.stack(
                [
                    _sum_of_squares(grad) / scale**2,
                    tf.reduce_sum(tf.square(update)),
                ]
            )
    return result


class FunctionWithNorms:
    """A `train_function` that keeps the norms of its last step.

    Args:
        model: Compiled `keras.Model` in training, with a step hook.

    Attributes:
        made_for: The function of the same steps without norms.
    """

    def __init__(self, model: keras.Model) -> None:
        self._paths: list[str] = []
        self._squares: Any = None
        hooked = model.train_function
        self.made_for = hooked.function

        def train_step(step: Callable[..., Any], *args: Any) -> dict[str, Any]:
            with _recording() as recorded:
                logs = step(*args)
            if not isinstance(logs, dict) or not recorded:
                raise InputError(
                    "Norms need a train_step that returns a dictionary and "
                    "calls its optimizer's apply. Received: a train_step of "
                    f"{type(model).__name__} that does not; leave norms=None"
                )
            self._paths = list(recorded)
            return {**logs, _NAME: tf.stack(list(recorded.values()))}

        patches = Patches()
        patches.put(model, "train_step", train_step)
        try:
            self._function = step_hooks.remake(model)
        finally:
            patches.undo()
            hooked.function = self.made_for

    def __call__(self, iterator: Any) -> Any:
        logs = dict(self._function(iterator))
        self._squares = logs.pop(_NAME)
        return logs

    def take(self) -> tuple[list[str], np.ndarray] | None:
        """Returns the norms of the last step, once; waits for it.

        Returns:
            Paths of the variables that have a gradient, and a NumPy array
            `[variables, 2]` of the L2 norms of the gradient, before clipping,
            and of the change of the variable. `None` if no step has run since
            the last call.
        """
        squares, self._squares = self._squares, None
        if squares is None:
            return None
        return self._paths, np.sqrt(squares.numpy())


@contextlib.contextmanager
def _recording() -> Iterator[_Squares]:
    before, _thread.recorded = _thread.recorded, {}
    try:
        yield _thread.recorded
    finally:
        _thread.recorded = before


def _loss_scale(optimizer: Any) -> Any:
    """Returns the factor by which the loss and its gradients are scaled."""
    dynamic = getattr(optimizer, "dynamic_scale", None)
    if dynamic is not None:
        return _float(dynamic.value)
    return optimizer.loss_scale_factor or 1.0


def _float(tensor: Any) -> tf.Tensor:
    return tf.cast(tensor, tf.float32)


def _sum_of_squares(grad: Any) -> tf.Tensor:
    if isinstance(grad, tf.IndexedSlices):
        # A row that several examples look up has the sum of their gradients.
        rows, places = tf.unique(grad.indices)
        grad = tf.math.unsorted_segment_sum(
            _float(grad.values), places, tf.size(rows)
        )
    return tf.reduce_sum(tf.square(_float(grad)))
