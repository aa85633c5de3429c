"""The optimizer of a recipe, with warm-up and decay as its learning rate."""

import keras

from kerasmgpu.schedules import WarmUp

# After 30, 60 and 80 of 90 epochs the learning rate is divided by ten (Goyal
# et al., arXiv:1706.02677, section 5.1).
_STAIRS = (30 / 90, 60 / 90, 80 / 90)


def learning_rate_schedule(plan, learning_rate_decay, initial_learning_rate):
    """The learning rate over a whole run, for any Keras optimizer.

    Args:
        plan: `TrainingPlan`: the full learning rate, the steps in all and
            those of the warm-up.
        learning_rate_decay: `"cosine"`, to 0 over the whole run, `"stairs"`, to a
            thousandth in three, or `"none"`.
        initial_learning_rate: Learning rate that the warm-up begins with.

    Returns:
        A float, or a `keras.optimizers.schedules.LearningRateSchedule`.
    """
    learning_rate = plan.learning_rate
    if learning_rate_decay == "cosine":
        learning_rate = keras.optimizers.schedules.CosineDecay(
            learning_rate, decay_steps=plan.steps
        )
    elif learning_rate_decay == "stairs":
        learning_rate = keras.optimizers.schedules.PiecewiseConstantDecay(
            # A boundary is the last step of its stair.
            [round(stair * plan.steps) - 1 for stair in _STAIRS],
            [learning_rate * 0.1**k for k in range(len(_STAIRS) + 1)],
        )
    if plan.warmup_steps:
        learning_rate = WarmUp(
            learning_rate, plan.warmup_steps, initial_learning_rate
        )
    return learning_rate


def build(name, plan, learning_rate_decay, initial_learning_rate):
    """Builds an optimizer for a training plan.

    Args:
        name: `"adam"`, `"rmsprop"` or `"sgd"`.
        plan: See `learning_rate_schedule`, as for the others.
        learning_rate_decay: See `learning_rate_schedule`.
        initial_learning_rate: Learning rate that the warm-up begins with.

    Returns:
        A `keras.optimizers.Optimizer`.
    """
    optimizers = {
        "adam": keras.optimizers.Adam,
        "rmsprop": keras.optimizers.RMSprop,
        "sgd": keras.optimizers.SGD,
    }
    return optimizers[name](
        learning_rate_schedule(plan, learning_rate_decay, initial_learning_rate)
    )
