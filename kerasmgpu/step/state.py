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


def average(strategy, states, assigned, bounds):
    """Gives all replicas the same value of each variable that was assigned.

    Args:
        strategy: The strategy that ran the step.
        states: Pairs of a layer and the variables in it that may come to
            differ by replica.
        assigned: `id`s of the Keras variables that the step assigned.
        bounds: First and end row of every replica's share.
    """
    rows = tf.stack([end - start for start, end in bounds])
    for layer, variables in states:
        for variable in variables:
            if id(variable) not in assigned:
                continue
            copies = strategy.experimental_local_results(variable.value)
            if len(copies) == 1 or not copies[0].dtype.is_floating:
                continue
            logging.log_first_n(
                logging.INFO,
                "kerasmgpu: variable %r of layer %r is assigned during the "
                "step; all replicas get the mean over their rows.",
                20,
                variable.name,
                layer.name,
            )
            variable.assign(
                mean_over_rows([c.read_value() for c in copies], rows)
            )
