"""Metrics that are no sums over rows see the global batch on every replica."""

import keras
import tensorflow as tf
from keras.src.metrics.reduction_metrics import MeanMetricWrapper
from keras.src.trainers.compile_utils import MetricsList

from kerasmgpu._keras.losses import (
    has_features,
    is_of_keras,
    where_values_are_local,
)
from kerasmgpu._keras.seams import seam
from kerasmgpu.step import loss
from kerasmgpu.step.replica import current


@seam(MetricsList, "update_state")
def _update_metrics(original, self, y_true, y_pred, sample_weight=None):
    replica = where_values_are_local()
    if replica is None:
        return original(self, y_true, y_pred, sample_weight)
    whole = [
        metric
        for metric in self.metrics
        if not is_row_wise_metric(metric, y_pred)
    ]
    for metric in self.metrics:
        if metric not in whole:
            metric.update_state(y_true, y_pred, sample_weight=sample_weight)
    if whole:
        gathered = loss.gather((y_true, y_pred, sample_weight), replica)
        with replica.global_batch():
            for metric in whole:
                loss.announce_gather("metric", metric.name)
                _read_first_replica(metric)
                metric.update_state(*gathered[:2], sample_weight=gathered[2])


@seam(keras.Variable, "assign")
def _assign(original, self, value):
    replica = current()
    if replica is not None:
        replica.assigned.add(id(self))
    return original(self, value)


def is_row_wise_metric(metric, y_pred):
    """Whether a metric's states are sums of what each row contributes."""
    function = getattr(metric, "_fn", None)
    if getattr(metric, "row_wise", False) or getattr(
        function, "row_wise", False
    ):
        return True
    if not is_of_keras(type(metric)):
        return False
    if not isinstance(metric, MeanMetricWrapper):
        return True
    return is_of_keras(function) and has_features(y_pred)


def _read_first_replica(metric):
    """Makes reads of a metric's states take the first replica's value."""
    for variable in metric.variables:
        state = variable.value
        if hasattr(state, "_aggregation"):
            state._aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
