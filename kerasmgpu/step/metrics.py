"""Results of metrics are those of the global batch.

States of Keras's own metrics are sums over rows; each replica adds what its
rows contribute and the sum over the replicas is taken when somebody reads.
Any other metric is given the gathered global batch on every replica, so that
all hold the same, complete state, and the first replica's is read.
"""

import tensorflow as tf

from kerasmgpu.step import collectives


def average(model, logs, replica):
    """A step's logs on a replica, as means over the rows of all replicas.

    Called on every replica. Logs of a metric that the step updated are left
    as they are: `results` reads them from the metric's state.
    """
    if not isinstance(logs, dict):
        return _mean_of_leaves(logs, replica)
    read_later = _names(_updated(model, replica.assigned))
    others = {k: v for k, v in logs.items() if k not in read_later}
    return {**logs, **_mean_of_leaves(others, replica)}


def results(strategy, model, logs, assigned):
    """What a step's logs are for the global batch.

    Args:
        strategy: The strategy that ran the step.
        model: The `keras.Model` whose step returned `logs`.
        logs: Nest of per-replica values that `average` returned.
        assigned: `id`s of the Keras variables that the step assigned.

    Returns:
        `logs` with the result of each metric that the step updated, read once
        over all replicas; any other value as `average` made it.
    """

    def first(value):
        return strategy.experimental_local_results(value)[0]

    if not isinstance(logs, dict):
        return tf.nest.map_structure(first, logs)
    exact = {}
    for metric in _updated(model, assigned):
        exact.update(_named_result(metric))
    return {
        name: exact[name]
        if name in exact
        else tf.nest.map_structure(first, value)
        for name, value in logs.items()
    }


def join(outputs, replica):
    """Predictions on a replica, as far as replicas must meet for them.

    A scalar is taken for a mean over the rows. Rows are joined here where
    there are other workers, else by the strategy without a collective.
    """

    def leaf(value):
        if getattr(value, "shape", None) is not None and not value.shape.rank:
            return mean_over_rows([value], replica)[0]
        if not replica.has_other_workers:
            return value
        return collectives.concatenate(value, replica)

    return tf.nest.map_structure(leaf, outputs)


def mean_over_rows(values, replica):
    """Means of the replicas' values, weighted by their rows.

    Args:
        values: List of this replica's tensors.
        replica: The current `Replica`.

    Returns:
        List of the means; tensors that are not of floats stay as they are.
    """
    own = [
        # The mean over an empty share is 0/0 and must not count.
        tf.where(
            replica.rows > 0,
            value * tf.cast(replica.rows, value.dtype),
            tf.zeros_like(value),
        )
        for value in values
        if value.dtype.is_floating
    ]
    totals = iter(collectives.sum_over_replicas(own) if own else ())
    return [
        tf.math.divide_no_nan(
            next(totals), tf.cast(replica.global_rows, value.dtype)
        )
        if value.dtype.is_floating
        else value
        for value in values
    ]


def _mean_of_leaves(nest, replica):
    leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(nest)]
    return tf.nest.pack_sequence_as(nest, mean_over_rows(leaves, replica))


def _updated(model, assigned):
    """The metrics of a model whose state the step assigned."""
    return [
        metric
        for metric in model.metrics
        if any(id(variable) in assigned for variable in metric.variables)
    ]


def _named_result(metric):
    result = metric.result()
    return result if isinstance(result, dict) else {metric.name: result}


def _names(metrics):
    return {name for metric in metrics for name in _named_result(metric)}
