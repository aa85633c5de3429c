"""Results of metrics are those of the global batch.

States of Keras's own metrics are sums over rows; each replica adds what its
rows contribute and the sum over the replicas is taken when somebody reads.
Any other metric is given the gathered global batch on every replica, so that
all hold the same, complete state, and the first replica's is read.
"""

import keras
import tensorflow as tf

from kerasmgpu.step import collectives


class StepLogs:
    """What a step of a model returns, for the global batch.

    A log of a metric that the step updated is the result of the metric's
    state; any other is a mean over rows.

    Args:
        model: The `keras.Model` whose step it is.
        assigned: Set that collects the `id`s of the Keras variables that the
            step assigns.
        leaves_out: Whether nobody looks at results of metrics: then they are
            NaN, and nothing is computed for them.
    """

    def __init__(self, model, assigned, leaves_out):
        self._model = model
        self._assigned = assigned
        self._leaves_out = leaves_out
        self._is_left_out = False

    def of_replica(self, logs, replica):
        """Takes the sums over the replicas; called on every one.

        Args:
            logs: What the step returned on this replica.
            replica: The current `Replica`.

        Returns:
            `(logs, sums)`: logs with the means, and the states of the updated
            metrics, for `of_global_batch`.
        """
        if not isinstance(logs, dict):
            return _mean_of_leaves(logs, replica), []
        in_metrics = _names(self._updated())
        others = {k: v for k, v in logs.items() if k not in in_metrics}
        if self._leaves_out and not others:
            # Keras reads the metrics itself where a step logs these alone.
            self._is_left_out = set(logs) == _names(self._model.metrics)
        if self._is_left_out:
            return {name: tf.constant(float("nan")) for name in logs}, []
        states = [variable.value.read_value() for variable in self._sums()]
        leaves = _leaves(others)
        means, sums = mean_over_rows(leaves, replica, states)
        return {**logs, **tf.nest.pack_sequence_as(others, means)}, sums

    def of_global_batch(self, strategy, logs, sums):
        """Puts the results of metrics into what the replicas returned.

        Args:
            strategy: The strategy that ran the step.
            logs: Nest of per-replica values.
            sums: List of per-replica values.

        Returns:
            `logs` of the global batch.
        """

        def first(value):
            return strategy.experimental_local_results(value)[0]

        logs = tf.nest.map_structure(first, logs)
        if self._is_left_out or not isinstance(logs, dict):
            return logs
        states = zip(self._sums(), [first(value) for value in sums])
        exact = {}
        with keras.StatelessScope(state_mapping=list(states)):
            for metric in self._updated():
                exact.update(_named_result(metric))
        return {name: exact.get(name, value) for name, value in logs.items()}

    def _updated(self):
        """The metrics whose state the step assigned."""
        return [
            metric
            for metric in self._model.metrics
            if any(id(v) in self._assigned for v in metric.variables)
        ]

    def _sums(self):
        """Variables of these metrics that are sums of the replicas' copies.

        Any other is read by TensorFlow, as its aggregation says.
        """
        return [
            variable
            for metric in self._updated()
            for variable in metric.variables
            if _is_sum(variable.value)
        ]


def _is_sum(state):
    return (
        state.dtype.is_floating
        and state.synchronization == tf.VariableSynchronization.ON_READ
        and state.aggregation == tf.VariableAggregation.SUM
    )


def join(outputs, replica):
    """Predictions on a replica, as far as replicas must meet for them.

    A scalar is taken for a mean over the rows. Rows are joined here where
    there are other workers, else by the strategy without a collective.
    """

    def leaf(value):
        if getattr(value, "shape", None) is not None and not value.shape.rank:
            return mean_over_rows([value], replica)[0][0]
        if not replica.has_other_workers:
            return value
        return collectives.concatenate(value, replica)

    return tf.nest.map_structure(leaf, outputs)


def mean_over_rows(values, replica, sums=()):
    """Means of the replicas' values, weighted by their rows.

    Args:
        values: List of this replica's tensors.
        replica: The current `Replica`.
        sums: List of tensors to sum over the replicas by the way.

    Returns:
        `(means, sums)`: lists of the means, where tensors that are not of
        floats stay as they are, and of the sums.
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
    together = [*own, *sums]
    together = collectives.sum_over_replicas(together) if together else []
    totals = iter(together[: len(own)])
    means = [
        tf.math.divide_no_nan(
            next(totals), tf.cast(replica.global_rows, value.dtype)
        )
        if value.dtype.is_floating
        else value
        for value in values
    ]
    return means, together[len(own) :]


def _leaves(nest):
    return [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(nest)]


def _mean_of_leaves(nest, replica):
    means, _ = mean_over_rows(_leaves(nest), replica)
    return tf.nest.pack_sequence_as(nest, means)


def _named_result(metric):
    result = metric.result()
    return result if isinstance(result, dict) else {metric.name: result}


def _names(metrics):
    return {name for metric in metrics for name in _named_result(metric)}
