"""Results of metrics are those of the global batch.

States of Keras's own metrics are sums over rows; each replica adds what its
rows contribute and the sum over the replicas is taken when somebody reads.
Any other metric is given the gathered global batch on every replica, so that
all hold the same, complete state, and the first replica's is read.
"""

import tensorflow as tf


def read_first_replica(metric):
    """Makes reads of a metric's states take the first replica's value."""
    for variable in metric.variables:
        state = variable.value
        if hasattr(state, "_aggregation"):
            state._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA


def results(strategy, model, logs):
    """What a step's logs are for the global batch.

    Args:
        strategy: The strategy that ran the step.
        model: The `keras.Model` whose step returned `logs`.
        logs: Nest of per-replica values.

    Returns:
        The model's metrics, read once over all replicas, where the step
        returned just those (Keras's own does, and any that ends in
        `compute_metrics`); else the mean of the replicas' values.
    """
    if isinstance(logs, dict):
        exact = model.get_metrics_result()
        if set(exact) == set(logs):
            return exact
    return tf.nest.map_structure(
        lambda value: tf.reduce_mean(
            tf.stack(strategy.experimental_local_results(value)), axis=0
        ),
        logs,
    )
