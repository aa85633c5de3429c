"""The sizes of a training run, derived from its settings."""

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kerasmgpu import replica_arithmetic
from kerasmgpu.errors import InputError

# After 30, 60 and 80 of 90 epochs the learning rate is divided by ten (Goyal
# et al., arXiv:1706.02677, section 5.1).
_STAIRS = (30 / 90, 60 / 90, 80 / 90)


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """Global batch, full learning rate and length of a run.

    Reports and checkpoints come at the end of each epoch; the learning rate
    rises over the first `warmup_steps`.
    """

    num_replicas: int
    global_batch_size: int
    learning_rate: float
    steps_per_epoch: int
    epochs: int
    warmup_steps: int

    @property
    def steps(self) -> int:
        """Total number of optimizer updates."""
        return self.steps_per_epoch * self.epochs

    def describe(self, devices: Sequence[str]) -> str:
        """One line with the derived sizes and the devices."""
        least = self.global_batch_size // self.num_replicas
        most = -(-self.global_batch_size // self.num_replicas)
        span = f"{least} to {most}" if least < most else most
        return (
            f"{self.num_replicas} replica(s) on {', '.join(devices)}; global "
            f"batch {self.global_batch_size} rows, {span} per replica; "
            f"learning rate {self.learning_rate:g}; {self.epochs} epochs of "
            f"{self.steps_per_epoch} steps"
        )

    def schedule(self, decay: str, initial_learning_rate: float) -> Any:
        """The learning rate over the run: a float, or a Keras schedule.

        `decay` is `"cosine"` (to 0), `"stairs"` (to a thousandth in three
        steps) or `"none"`; the warm-up begins at `initial_learning_rate`.
        """
        from keras.optimizers import schedules

        from kerasmgpu.schedules import WarmUp

        rate: Any = self.learning_rate
        if decay == "cosine":
            rate = schedules.CosineDecay(rate, decay_steps=self.steps)
        elif decay == "stairs":
            rate = schedules.PiecewiseConstantDecay(
                # A boundary is the last step of its stair.
                [round(stair * self.steps) - 1 for stair in _STAIRS],
                [rate * 0.1**k for k in range(len(_STAIRS) + 1)],
            )
        if self.warmup_steps:
            rate = WarmUp(rate, self.warmup_steps, initial_learning_rate)
        return rate


def make(
    settings: SimpleNamespace, num_replicas: int, num_rows: int
) -> TrainingPlan:
    """Derives the plan from the flags of `shared_flags.define`."""
    global_batch_size = settings.global_batch_size
    learning_rate = settings.learning_rate
    if global_batch_size is None:
        global_batch_size = replica_arithmetic.global_batch_size(
            settings.batch_size_per_replica, num_replicas
        )
        learning_rate = replica_arithmetic.scale_learning_rate(
            learning_rate, num_replicas, settings.learning_rate_scaling
        )
    elif global_batch_size < num_replicas:
        raise InputError(
            "The global batch needs a row for each replica. Received: "
            f"--global_batch_size={global_batch_size} for {num_replicas} "
            "replicas; raise it or lower --num_replicas"
        )
    steps_per_pass = -(-num_rows // global_batch_size)
    steps = settings.steps or settings.epochs * steps_per_pass
    steps_per_epoch = min(settings.steps_per_epoch or steps_per_pass, steps)
    if steps % steps_per_epoch:
        divisor = max(n for n in range(1, steps_per_epoch) if steps % n == 0)
        raise InputError(
            f"{steps} steps can't be cut into epochs of {steps_per_epoch}. "
            "Give a --steps_per_epoch that divides the steps, such as "
            f"{divisor}"
        )
    warmup_epochs = getattr(settings, "warmup_epochs", 0)
    warmup_steps = settings.warmup_steps or warmup_epochs * steps_per_pass
    if warmup_steps >= steps:
        raise InputError(
            "The warm-up must be shorter than the run. Received: "
            f"--warmup_steps={warmup_steps} of {steps} steps"
        )
    return TrainingPlan(
        num_replicas,
        global_batch_size,
        learning_rate,
        steps_per_epoch,
        steps // steps_per_epoch,
        warmup_steps,
    )
