"""The sizes of a training run, worked out from its settings once."""

import dataclasses

from kerasmgpu import replica_arithmetic
from kerasmgpu.errors import InputError


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """What the settings of a recipe come to for its data and its devices.

    Args:
        num_replicas: Copies of the model.
        global_batch_size: Rows of a full step on all replicas together.
        learning_rate: Full learning rate, scaled for the replicas.
        steps_per_epoch: Steps between two reports and checkpoints.
        epochs: Number of such epochs.
        warmup_steps: Steps over which the learning rate rises.
    """

    num_replicas: int
    global_batch_size: int
    learning_rate: float
    steps_per_epoch: int
    epochs: int
    warmup_steps: int

    @property
    def steps(self):
        """Optimizer updates in all."""
        return self.steps_per_epoch * self.epochs

    def describe(self, devices):
        """One line for people: the derived sizes, and the devices by name."""
        sizes = replica_arithmetic.per_replica_batch_sizes(
            self.global_batch_size, self.num_replicas
        )
        per_replica = str(sizes[0])
        if sizes[-1] != sizes[0]:
            per_replica = f"{sizes[-1]} to {sizes[0]}"
        return (
            f"{self.num_replicas} replica(s) on {', '.join(devices)}; global "
            f"batch {self.global_batch_size} rows, {per_replica} per replica; "
            f"learning rate {self.learning_rate:g}; {self.epochs} epochs of "
            f"{self.steps_per_epoch} steps"
        )


def make(settings, num_replicas, num_rows):
    """Derives the plan.

    The global batch is the per-replica batch times the replicas, with the
    learning rate scaled by the chosen rule; or it is given, with the learning
    rate as it is.

    Args:
        settings: The recipe's settings, with those of `shared_flags.define`.
        num_replicas: Replicas that the strategy has.
        num_rows: Rows of the training data.

    Returns:
        A `TrainingPlan`.

    Raises:
        InputError: If the global batch has fewer rows than there are
            replicas, if an epoch's steps don't divide the steps in all, or if
            the warm-up is longer than the run.
    """
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
    steps_per_epoch, epochs = _length(settings, steps_per_pass)
    if settings.warmup_steps >= steps_per_epoch * epochs:
        raise InputError(
            "The warm-up must be shorter than the run. Received: "
            f"--warmup_steps={settings.warmup_steps} of "
            f"{steps_per_epoch * epochs} steps"
        )
    return TrainingPlan(
        num_replicas,
        global_batch_size,
        learning_rate,
        steps_per_epoch,
        epochs,
        settings.warmup_steps,
    )


def _length(settings, steps_per_pass):
    """Steps per epoch, and epochs."""
    steps = settings.steps
    if steps is None:
        steps = settings.epochs * steps_per_pass
    steps_per_epoch = min(settings.steps_per_epoch or steps_per_pass, steps)
    if steps % steps_per_epoch:
        divisor = max(n for n in range(1, steps_per_epoch) if steps % n == 0)
        raise InputError(
            f"{steps} steps can't be cut into epochs of {steps_per_epoch}. "
            "Give a --steps_per_epoch that divides the steps, such as "
            f"{divisor}"
        )
    return steps_per_epoch, steps // steps_per_epoch
