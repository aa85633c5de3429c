"""Results of metrics are those of the global batch.

States of Keras's own metrics are sums over rows; each replica adds what its
rows contribute and the sum over the replicas is taken when somebody reads.
Any other metric is given the gathered global batch on every replica, so that
all hold the same, complete state, and the first replica's is read.
"""

import tensorflow as tf


def results(strategy, model, logs, bounds, assigned):
    """What a step's logs are for the global batch.

    Args:
        strategy: The strategy that ran the step.
        model: The `keras.Model` whose step returned `logs`.
        logs: Nest of per-replica values.
        bounds: First and end row of every replica's share.
        assigned: `id`s of the Keras variables that the step assigned.

    Returns:
        `logs` with the result of each metric that the step updated, read once
        over all replicas; any other value as the mean of the replicas',
        weighted by their rows.
    """
    exact = {}
    for metric in model.metrics if isinstance(logs, dict) else ():
        if any(id(variable) in assigned for variable in metric.variables):
            result = metric.result()
            named = isinstance(result, dict)
            exact.update(result if named else {metric.name: result})
    rows = tf.stack([end - start for start, end in bounds])

    def mean(value):
        shares = strategy.experimental_local_results(value)
        return mean_over_rows(shares, rows)

    if not isinstance(logs, dict):
        return tf.nest.map_structure(mean, logs)
    return {
        name: exact[name]
        if name in exact
        else tf.nest.map_structure(mean, value)
        for name, value in logs.items()
    }


def mean_over_rows(values, rows):
    """Mean of the replicas' values, weighted by their rows.

    Args:
        values: One tensor per replica, all of one shape.
        rows: Integers `[replicas]`, rows of each replica's share.

    Returns:
        Tensor of that shape; the first replica's value where it is no float.
    """
    values = tf.stack(values)
    if not values.dtype.is_floating:
        return values[0]
    axes = [-1] + [1] * (values.shape.rank - 1)
    rows = tf.reshape(tf.cast(rows, values.dtype), axes)
    # The mean over an empty share is 0/0 and must not count.
    total = tf.reduce_sum(tf.where(rows > 0, values * rows, 0), axis=0)
    return tf.math.divide_no_nan(total, tf.reduce_sum(rows))
