"""Runs an example on one device and on replicas, and compares the two."""

import functools
import math

import numpy as np
import tensorflow as tf

import kerasmgpu
from tests.devices import device_names, running_as_gpus
from tests.keras_io import processes, registry
from tests.models import measuring
from tests.parity import harness

ONE_DEVICE = ("one device", 1)
VARIANTS = tuple(
    (contender, count)
    for contender in ("stock", "kerasmgpu")
    for count in (2, 3)
)

AS_GPUS = ("kerasmgpu as GPUs", 3)
"""The program that GPUs would get, on logical CPUs."""


def records(name, variants, tell):
    """Tells one record per run of an example.

    Args:
        name: Example's name.
        variants: Pairs of a contender and a number of replicas.
        tell: Function that takes a dictionary: `{"begins": variant}` before a
            run, and the run's results behind it.
    """
    example = registry.EXAMPLES[name]
    tell({"begins": ONE_DEVICE})
    try:
        one = registry.outcome(example)
    # The rest can't be compared: each run is told to have failed.
    except Exception as error:  # noqa: B902
        for variant in variants:
            tell(
                {"ends": variant, **processes.failure(error, "on one device: ")}
            )
        return
    tell({"ends": ONE_DEVICE})
    for variant in variants:
        tell({"begins": variant})
        try:
            with running_as_gpus(variant == AS_GPUS):
                many = registry.outcome(example, *_run(*variant))
            result = compared(one, many, example.tolerance)
        # Whatever a strategy raises is the result that the table reports.
        except Exception as error:  # noqa: B902
            result = processes.failure(error)
        tell({"ends": variant, **result})


def compared(one, many, tolerance):
    """Largest distances of two outcomes, and whether all are rounding."""
    distances = {
        "weights": one.weights
        and measuring.distance_of_each_weight(one, many)
        or 0.0,
        "logs": harness.log_distance(one.history, many.history),
        "results": harness.log_distance(one.prediction, many.prediction),
    }
    distance, what = max(
        (math.inf if math.isnan(value) else value, what)
        for what, value in distances.items()
    )
    return {
        "distances": distances,
        "distance": distance,
        "what": what,
        "copies_differ": many.spread > 0,
        "in_parity": distance <= tolerance and many.spread == 0,
    }


def _run(contender, count):
    """Arguments of a `registry.Run`."""
    devices = device_names(count)
    if contender in ("kerasmgpu", AS_GPUS[0]):
        return kerasmgpu.MirroredStrategy(devices), kerasmgpu.partition
    strategy = tf.distribute.MirroredStrategy(
        devices, tf.distribute.ReductionToOneDevice()
    )
    return strategy, functools.partial(_by_hand, strategy)


def _by_hand(strategy, function):
    """A step as stock TensorFlow has it: each replica gets a share of rows."""
    count = strategy.num_replicas_in_sync
    compiled = tf.function(lambda *args: strategy.run(function, args))

    def share(array):
        if len(array) < count:
            return array
        shares = np.array_split(array, count)
        return strategy.experimental_distribute_values_from_function(
            lambda replica: tf.constant(
                shares[replica.replica_id_in_sync_group]
            )
        )

    def step(*arrays):
        results = compiled(*map(share, arrays))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, results, None)

    return step
