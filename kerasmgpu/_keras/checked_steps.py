"""Checks inside a compiled training step that the loss is finite.

Each replica checks its own part of the loss, so nothing is sent. What optimizers
are given waits for the check: gradients, of which they make updates, and the
learning rate, by which weights decay. A step whose loss isn't finite fails with
the weights and slots from before it. Checked on Keras 3.10 and 3.15.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras.patches import Patches
from kerasmgpu._keras.training_state import optimizers
from kerasmgpu.partitioner.rules.elementwise import CHECK_OF_PARTS


class CheckedStep:
    """Checks a model's steps, from `install` to `remove`.

    Args:
        model: Compiled `keras.Model`.
        with_gradients: Boolean, whether gradients are checked, too. In a
            `train_step` that doesn't call `compute_loss` they always are,
            except those that a `LossScaleOptimizer` checks.

    Attributes:
        step: The model's bound `train_step`, without checks.
    """

    def __init__(self, model: keras.Model, with_gradients: bool) -> None:
        self._model = model
        self._with_gradients = with_gradients
        self._patches = Patches()
        self._checks: list[tf.Tensor] | None = None
        self.step = model.train_step
        with model.distribute_strategy.scope():
            self._done = tf.Variable(
                0,
                trainable=False,
                dtype=tf.int64,
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )

    def done(self, replica: int) -> int:
        """Returns how many steps passed the checks on a local replica."""
        copies = getattr(self._done, "values", [self._done])
        return int(copies[min(replica, len(copies) - 1)])

    def install(self) -> None:
        """Adds the checks to steps that are traced from now on."""
        self._patches.put(self._model, "train_step", self._train_step)
        self._patches.put(self._model, "compute_loss", self._compute_loss)
        for optimizer in optimizers(self._model):
            apply = functools.partial(self._apply, optimizer)
            self._patches.put(optimizer, "apply", apply)
            inner = getattr(optimizer, "inner_optimizer", optimizer)
            self._patches.put(
                inner, "_get_current_learning_rate", self._waiting
            )

    def remove(self) -> None:
        """Undoes `install`."""
        self._patches.undo()

    def _train_step(self, original: Callable[..., Any], *args: Any) -> Any:
        self._checks = []
        try:
            outputs = original(*args)
            with tf.control_dependencies(self._of_this_graph()):
                self._done.assign_add(1)
        finally:
            self._checks = None
        return outputs

    def _compute_loss(
        self, original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        loss = original(*args, **kwargs)
        if self._checks is not None and tf.is_tensor(loss):
            self._check(loss)
        return loss

    def _apply(
        self,
        optimizer: Any,
        original: Callable[..., Any],
        grads: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        grads = list(grads)
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if self._checks is not None and not scales:
            if self._with_gradients or not self._checks:
                self._check(_sum_of(grads))
        checks = self._of_this_graph()
        if checks:
            with tf.control_dependencies(checks):
                grads = [
                    None
                    if gradient is None
                    # Rows of tables, too.
                    else tf.nest.map_structure(
                        tf.identity, gradient, expand_composites=True
                    )
                    for gradient in grads
                ]
        return original(grads, *args, **kwargs)

    def _check(self, value: Any) -> None:
        if self._checks is not None and value is not None:
            value = tf.stop_gradient(tf.convert_to_tensor(value))
            self._checks.append(
                tf.debugging.check_numerics(value, CHECK_OF_PARTS)
            )

    def _waiting(self, original: Callable[..., Any]) -> Any:
        """Returns the learning rate, with control dependencies on the checks.

        In a branch, such as that of a `LossScaleOptimizer`, it has none: such
        an optimizer skips updates by itself.
        """
        rate = original()
        checks = self._of_this_graph()
        if not checks:
            return rate
        with tf.control_dependencies(checks):
            return tf.identity(tf.convert_to_tensor(rate))

    def _of_this_graph(self) -> list[tf.Tensor]:
        checks = self._checks or []
        if tf.executing_eagerly():
            return []
        graph = tf.compat.v1.get_default_graph()
        return [check for check in checks if check.graph is graph]


def _sum_of(gradients: list[Any]) -> tf.Tensor | None:
    """Sums all elements: not finite if one isn't; `None` if there are none."""
    parts = [
        tf.reduce_sum(
            tf.cast(getattr(gradient, "values", gradient), tf.float32)
        )
        for gradient in gradients
        if gradient is not None
    ]
    return tf.add_n(parts) if parts else None
