"""Optimizers of image networks, and their learning rate."""

from types import SimpleNamespace
from typing import Any

import keras

from kerasmgpu.recipes.alexnet.lars import LARS
from kerasmgpu.recipes.shared.training_plan import TrainingPlan


def learning_rate(settings: SimpleNamespace, plan: TrainingPlan) -> Any:
    """The learning rate over the whole run; see `TrainingPlan.schedule`."""
    # Goyal et al. warm up from the rate of one replica. If that is the full
    # rate, the warm-up begins at 0.
    initial = settings.learning_rate
    if initial >= plan.learning_rate:
        initial = 0.0
    return plan.schedule(settings.learning_rate_decay, initial)


def build(
    settings: SimpleNamespace, plan: TrainingPlan, model: keras.Model
) -> keras.Optimizer:
    """Builds the optimizer for a model.

    Weight decay is that of the optimizer's paper: a penalty in the loss for SGD
    (part of the model), scaled by the layer's rate for LARS, decoupled for LAMB.
    Biases and scales have none.
    """
    rate = learning_rate(settings, plan)
    momentum, decay = settings.momentum, settings.weight_decay
    if settings.optimizer == "sgd":
        return keras.optimizers.SGD(rate, momentum=momentum)
    if settings.optimizer == "lars":
        return LARS(rate, momentum, decay, settings.trust_coefficient)
    optimizer = keras.optimizers.Lamb(rate, weight_decay=decay or None)
    optimizer.exclude_from_weight_decay(
        var_list=[v for v in model.trainable_variables if len(v.shape) < 2]
    )
    return optimizer
