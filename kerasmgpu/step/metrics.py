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


def results(strategy, model, logs, bounds):
    """What a step's logs are for the global batch.

    Args:
        strategy: The strategy that ran the step.
        model: The `keras.Model` whose step returned `logs`.
        logs: Nest of per-replica values.
        bounds: First and end row of every replica's share.

    Returns:
        The model's metrics, read once over all replicas, where the step
        returned just those (Keras's own does, and any that ends in
        `compute_metrics`); else the mean of the replicas' values, weighted by
        their rows.
    """
    if isinstance(logs, dict):
        exact = model.get_metrics_result()
        if set(exact) == set(logs):
            return exact
    rows = tf.stack([end - start for start, end in bounds])
    return tf.nest.map_structure(
        lambda value: _mean_over_rows(
            strategy.experimental_local_results(value), rows
        ),
        logs,
    )


def _mean_over_rows(values, rows):
    values = tf.stack(values)
    if not values.dtype.is_floating:
        return values[0]
    axes = [-1] + [1] * (values.shape.rank - 1)
    rows = tf.reshape(tf.cast(rows, values.dtype), axes)
    # The mean over an empty share is 0/0 and must not count.
    total = tf.reduce_sum(tf.where(rows > 0, values * rows, 0), axis=0)
    return tf.math.divide_no_nan(total, tf.reduce_sum(rows))
