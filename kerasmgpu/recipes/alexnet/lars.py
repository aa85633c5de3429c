"""LARS: a learning rate per layer, for very large batches."""

from typing import Any

import keras
from keras import ops

from kerasmgpu.errors import checked_number


@keras.saving.register_keras_serializable(package="kerasmgpu")
class LARS(keras.optimizers.Optimizer):
    """Layer-wise adaptive rate scaling (You et al., arXiv:1708.03888).

    With the large learning rate of a large batch, layers whose gradients are
    large relative to their weights diverge first. LARS scales each layer's
    update to its weights (algorithm 1):

    ```
    local = trust_coefficient * |w| / (|g| + weight_decay * |w|)
    velocity = momentum * velocity
               + learning_rate * local * (g + weight_decay * w)
    w = w - velocity
    ```

    Variables of fewer than two dimensions (biases, scales of batch
    normalisation) get plain SGD with momentum, without weight decay; so does a
    variable of zeros, or with a gradient of zeros, in that step.

    Args:
        learning_rate: Float above 0 or
            `keras.optimizers.schedules.LearningRateSchedule`. Good values are
            higher than those of SGD.
        momentum: Float of at least 0.
        weight_decay: Float of at least 0.
        trust_coefficient: Float above 0, norm of a layer's update at learning
            rate 1, as a share of the norm of its weights.
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        name: str = "lars",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum = checked_number(momentum, "momentum", zero_allowed=True)
        # Keras's `weight_decay` is decoupled from the gradient; here it is a
        # part of the formula, so it must not be that attribute.
        self.penalty = checked_number(
            weight_decay, "weight_decay", zero_allowed=True
        )
        self.trust_coefficient = checked_number(
            trust_coefficient, "trust_coefficient"
        )

    def build(self, variables: Any) -> None:
        if not self.built:
            super().build(variables)
            self._velocities = self.add_optimizer_variables(
                variables, "velocity"
            )

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        learning_rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        if len(variable.shape) > 1:
            gradient = self._scaled(gradient, variable)
        # As the documentation of Keras's `Optimizer` says.
        velocity = self._velocities[self._get_variable_index(variable)]
        carried = self.momentum * ops.convert_to_tensor(velocity)
        self.assign(velocity, carried + learning_rate * gradient)
        self.assign_sub(variable, velocity)

    def _scaled(self, gradient: Any, variable: Any) -> Any:
        """The gradient with weight decay, at the layer's rate."""
        weights = ops.convert_to_tensor(variable)
        weight_norm = ops.sqrt(ops.sum(ops.square(weights)))
        gradient_norm = ops.sqrt(ops.sum(ops.square(gradient)))
        norms = gradient_norm + self.penalty * weight_norm
        # The small number only counts where both norms are 0, and `local` isn't
        # used.
        norms += keras.config.epsilon() ** 3
        local = self.trust_coefficient * weight_norm / norms
        applies = ops.logical_and(weight_norm > 0, gradient_norm > 0)
        direction = gradient + self.penalty * weights
        return ops.where(applies, local * direction, gradient)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "weight_decay": self.penalty,
            "trust_coefficient": self.trust_coefficient,
        }
