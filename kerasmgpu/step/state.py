"""State that a layer keeps in its own variables never differs by replica.

A layer's variable that is assigned during the step (a running mean of its
inputs, say) would otherwise hold what each replica saw, and what is saved
would not be what predicted. The mean over the replicas, weighted by their
rows, is what one device has where the new value is a mean over rows, blended
with the old one or not. Other kinds of state (a sum, a maximum) can't be
known from outside; `python -m kerasmgpu.verify` finds them.
"""

import tensorflow as tf
from absl import logging

from kerasmgpu.step.metrics import mean_over_rows


def averages(states, replica):
    """Means over all replicas of the variables that this step assigned.

    Args:
        states: Pairs of a layer and the variables in it that may come to
            differ by replica.
        replica: The current `Replica`.

    Returns:
        One tensor per variable that is to be assigned by `assign`.
    """
    values = [
        variable.value.read_value()
        for _, variable in _differing(states, replica.assigned)
    ]
    means, _ = mean_over_rows(values, replica)
    return means


def assign(strategy, states, assigned, averages):
    """Gives all replicas the same value of each variable that was assigned.

    Args:
        strategy: The strategy that ran the step.
        states: See `averages`.
        assigned: `id`s of the Keras variables that the step assigned.
        averages: What `averages` returned on the replicas.
    """
    for (layer, variable), average in zip(
        _differing(states, assigned), averages
    ):
        logging.log_first_n(
            logging.INFO,
            "kerasmgpu: variable %r of layer %r is assigned during the step; "
            "all replicas get the mean over their rows.",
            20,
            variable.name,
            layer.name,
        )
        variable.assign(strategy.experimental_local_results(average)[0])


def _differing(states, assigned):
    """Pairs of a layer and a variable whose copies may differ after a step."""
    return [
        (layer, variable)
        for layer, variables in states
        for variable in variables
        if id(variable) in assigned
        and hasattr(variable.value, "distribute_strategy")
        and tf.as_dtype(variable.value.dtype).is_floating
    ]
