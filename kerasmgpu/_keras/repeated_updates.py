"""Traces what an optimizer does for a variable once per kind of variable.

Only for optimizers of Keras whose code was read: their updates depend on the
types and shapes of the variable, its slots and its gradient, and on settings
that all variables share. Muon looks at paths, and a user's optimizer may look at
anything. Only in steps that are traced as on one device: elsewhere an update is
a merge call of all replicas. Read in Keras 3.10 and 3.15, which is checked.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from keras import Variable, optimizers
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from kerasmgpu._keras.patches import Patches
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.repeated import Repeated
from kerasmgpu.schedules import WarmUp

READ = {
    kind: kind.update_step
    for kind in (
        optimizers.Adadelta,
        optimizers.Adafactor,
        optimizers.Adagrad,
        optimizers.Adam,
        optimizers.AdamW,
        optimizers.Adamax,
        optimizers.Ftrl,
        optimizers.Lamb,
        optimizers.Lion,
        optimizers.Nadam,
        optimizers.RMSprop,
        optimizers.SGD,
    )
}
"""Maps each class to its update, which a program may replace."""

_AVERAGES = "_model_variables_moving_average"


def _is_read(optimizer: Any) -> bool:
    """Whether it is one of these, as Keras made it, in a step of ours."""
    strategy = optimizer._distribution_strategy
    if not (is_ours(strategy) and strategy.extended.is_one_device):
        return False
    update_step = getattr(optimizer.update_step, "__func__", None)
    return update_step is READ.get(type(optimizer), optimizer)


def _is_fixed(rate: Any) -> bool:
    """Whether a learning rate is the same whenever a step asks for it."""
    if type(rate) is WarmUp:
        rate = rate.learning_rate
    return not callable(rate) or type(rate).__module__.startswith("keras.src.")


def _slots(optimizer: Any) -> list[tuple[Any, ...]]:
    """Returns the slots of each variable that an optimizer trains."""
    count = len(optimizer._trainable_variables)
    lists = [
        value
        for name, value in vars(optimizer).items()
        if isinstance(value, list)
        and len(value) == count
        and name not in ("_trainable_variables", "_variables")
        and all(one is None or isinstance(one, Variable) for one in value)
    ]
    return list(zip(*lists)) if lists else [()] * count


def _values(variables: Iterable[Any]) -> list[Any]:
    return [one if one is None else one.value for one in variables]


@seam(TFOptimizer, "_distributed_tf_update_step")
def _distributed_tf_update_step(
    original: Original,
    self: Any,
    distribution: Any,
    grads_and_vars: Any,
    learning_rate: Any,
) -> None:
    if not _is_read(self):
        original(self, distribution, grads_and_vars, learning_rate)
        return
    slots = _slots(self)

    def own(variable: Any, gradient: Any, learning_rate: Any) -> Any:
        if not isinstance(gradient, tf.Tensor):
            return None
        index = self._get_variable_index(variable)
        return [variable, gradient, *_values(slots[index])]

    with distribution.extended.repeating(own):
        original(self, distribution, grads_and_vars, learning_rate)


@seam(TFOptimizer, "_apply_weight_decay")
def _apply_weight_decay(original: Original, self: Any, variables: Any) -> None:
    if not (_is_read(self) and _is_fixed(self._learning_rate)):
        original(self, variables)
        return
    with self._distribution_strategy.extended.repeating(
        lambda variable: [variable, self._use_weight_decay(variable)]
    ):
        original(self, variables)


@seam(BaseOptimizer, "_clip_gradients")
def _clip_gradients(original: Original, self: Any, grads: Any) -> Any:
    if not (_is_read(self) and self.clipnorm):
        return original(self, grads)
    repeated = Repeated(
        lambda grad: [grad] if isinstance(grad, tf.Tensor) else None
    )
    patches = Patches()
    patches.put(self, "_clip_by_norm", repeated.call)
    try:
        return original(self, grads)
    finally:
        patches.undo()


@seam(BaseOptimizer, "_update_model_variables_moving_average")
def _update_model_variables_moving_average(
    original: Original, self: Any, trainable_variables: Any
) -> None:
    if not (_is_read(self) and self.use_ema):
        original(self, trainable_variables)
        return
    averages, variables = getattr(self, _AVERAGES), list(trainable_variables)
    repeated = Repeated(lambda *pair: _values(pair))

    def update(variable: Any, average: Any) -> None:
        # Bypasses Keras's attribute tracker.
        object.__setattr__(self, _AVERAGES, [average])
        original(self, [variable])

    try:
        for pair in zip(variables, averages):
            repeated.call(update, *pair)
    finally:
        object.__setattr__(self, _AVERAGES, averages)
