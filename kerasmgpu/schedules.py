"""Learning-rate schedules that Keras lacks."""

from typing import Any

import keras

from kerasmgpu.errors import checked_integer, checked_number


@keras.saving.register_keras_serializable(package="kerasmgpu")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to a learning rate or to another schedule.

    With several replicas the batch is larger and so is the scaled learning
    rate, too large for freshly initialised weights. Gradual warm-up (Goyal et
    al., arXiv:1706.02677, section 2.2) starts from the rate of one replica and
    adds the same amount in each step:

    ```
    step <  warmup_steps:  initial + (target - initial) * step / warmup_steps
    step >= warmup_steps:  learning_rate(step)
    ```

    where `target = learning_rate(warmup_steps)`, so the rate doesn't jump at
    the end of the warm-up.

    The wrapped schedule counts from the first step of training, not from the
    end of the warm-up: as in Goyal et al., warm-up replaces the schedule's
    first steps. Milestones keep their steps, and a decay over the whole
    training ends with it. (Optax's `join_schedules`, and `warmup_steps` of
    `keras.optimizers.schedules.CosineDecay`, start the decay at the end of the
    warm-up: there, training is longer by the warm-up.)

    The step is the optimizer's count of updates, so resumed training continues
    the schedule. With gradient accumulation one update is several batches.

    A model compiled with this schedule loads where kerasmgpu is imported;
    elsewhere, load it with `compile=False`.

    Args:
        learning_rate: Float above 0, or any
            `keras.optimizers.schedules.LearningRateSchedule`: the rate after
            the warm-up.
        warmup_steps: Integer, optimizer updates of the warm-up; 0 for none.
        initial_learning_rate: Float, the learning rate of step 0; at least 0.
            Goyal et al. take the rate of one replica. Defaults to `0.0`.
        name: String. Defaults to `"WarmUp"`.

    Raises:
        InputError: If an argument is of another type or out of range.

    Example:

    ```python
    steps = 90 * steps_per_epoch
    learning_rate = kerasmgpu.schedules.WarmUp(
        keras.optimizers.schedules.CosineDecay(3.2, decay_steps=steps),
        warmup_steps=5 * steps_per_epoch,
        initial_learning_rate=0.1,
    )
    model.compile(keras.optimizers.SGD(learning_rate), loss="mse")
    ```
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
        warmup_steps: int,
        initial_learning_rate: float = 0.0,
        name: str = "WarmUp",
    ) -> None:
        super().__init__()
        if not isinstance(
            learning_rate, keras.optimizers.schedules.LearningRateSchedule
        ):
            learning_rate = checked_number(learning_rate, "learning_rate")
        self.learning_rate = learning_rate
        self.warmup_steps = checked_integer(
            warmup_steps, "warmup_steps", minimum=0
        )
        self.initial_learning_rate = checked_number(
            initial_learning_rate, "initial_learning_rate", zero_allowed=True
        )
        self.name = name

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of a step.

        Args:
            step: Scalar tensor `[]` or number, updates made so far.

        Returns:
            Scalar float tensor, `[]`.
        """
        with keras.name_scope(self.name):
            step = keras.ops.convert_to_tensor(step)
            after = self._after(step)
            if self.warmup_steps == 0:
                return after
            target = self._after(
                keras.ops.convert_to_tensor(self.warmup_steps, step.dtype)
            )
            initial = keras.ops.cast(self.initial_learning_rate, after.dtype)
            share = keras.ops.cast(step, after.dtype) / self.warmup_steps
            return keras.ops.where(
                step < keras.ops.cast(self.warmup_steps, step.dtype),
                initial + (target - initial) * share,
                after,
            )

    def _after(self, step: Any) -> Any:
        if callable(self.learning_rate):
            return keras.ops.convert_to_tensor(self.learning_rate(step))
        return keras.ops.convert_to_tensor(
            self.learning_rate, keras.config.floatx()
        )

    def get_config(self) -> dict[str, Any]:
        learning_rate = self.learning_rate
        if not isinstance(learning_rate, float):
            learning_rate = keras.saving.serialize_keras_object(learning_rate)
        return {
            "learning_rate": learning_rate,
            "warmup_steps": self.warmup_steps,
            "initial_learning_rate": self.initial_learning_rate,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "WarmUp":
        config = dict(config)
        if isinstance(config["learning_rate"], dict):
            config["learning_rate"] = keras.saving.deserialize_keras_object(
                config["learning_rate"]
            )
        return cls(**config)
