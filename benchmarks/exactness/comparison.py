"""Runs a case on one device and on replicas, and compares the two."""

import collections
import functools
import math

import numpy as np
import tensorflow as tf

import kerasmgpu
from benchmarks.exactness import harness
from benchmarks.exactness.keras_io import run
from kerasmgpu.partitioner.runtime import report
from kerasmgpu.partitioner.runtime.one_device import is_sum
from tests.devices import device_names, running_as_gpus


class OneDeviceError(Exception):
    """A program that fails on one device: there is nothing to compare with."""


class Measure:
    """Results of a case under strategies; on one device it runs once.

    Args:
        case: `registry.Case`.
    """

    def __init__(self, case):
        self._case = case

    @functools.cached_property
    def one(self):
        """`harness.Outcome` of one device."""
        try:
            return _outcome(self._case)[0]
        except Exception as error:
            raise OneDeviceError(f"{type(error).__name__}: {error}") from error

    def __call__(self, variant):
        """Compares a contender on some number of replicas.

        Args:
            variant: Such as `"stock, 2"`, `"kerasmgpu, 3"`, or `"as GPUs, 3"`:
                the program that GPUs would get, on logical CPUs.

        Returns:
            See `compared`; of models under kerasmgpu also `counts`.
        """
        one = self.one
        contender, _, count = variant.partition(", ")
        devices = device_names(int(count))
        if contender == "stock":
            strategy = tf.distribute.MirroredStrategy(
                devices, tf.distribute.ReductionToOneDevice()
            )
            by_hand = functools.partial(_by_hand, strategy)
            many, _ = _outcome(self._case, strategy, by_hand)
            return compared(one, many, self._case)
        with running_as_gpus(contender == "as GPUs"):
            strategy = kerasmgpu.MirroredStrategy(devices)
            many, model = _outcome(self._case, strategy, kerasmgpu.partition)
        many.spread = many.spread or bool(different_copies(strategy))
        return {**compared(one, many, self._case), **counts(model)}


def _outcome(case, strategy=None, partition=tf.function):
    """The `harness.Outcome` of a run, and the model, if there is just one."""
    if case.is_script:
        return run.outcome(case, strategy, partition), None
    outcome, program = harness.trained(case, strategy)
    return outcome, program.model


def compared(one, many, case):
    """Compares two outcomes.

    Returns:
        `{"distance": largest distance, "what": of what, "flaws": list of what
        else is wrong, "in_parity": whether all is rounding}`.
    """
    distance, what = max(
        (math.inf if math.isnan(value) else value, what)
        for what, value in harness.distances(one, many, case.by_weight).items()
    )
    flaws = ["copies differ"] if many.spread else []
    flaws += ["data changed"] if many.data_changed else []
    return {
        "distance": distance,
        "what": what,
        "flaws": flaws,
        "in_parity": distance <= case.tolerance and not flaws,
    }


def counts(model):
    """How operations of all training steps that a model traced are run.

    Returns:
        `{"operations", "with rule", "gathered": see report.counts, "whole":
        names of products of whole batches, which no replicas share}`; empty
        for a model whose steps are not partitioned.
    """
    step = getattr(model, "train_function", None)
    programs = getattr(step, "programs", ())
    if not programs:
        return {}
    operations, with_rule, gathered, kinds = zip(*map(report.counts, programs))
    kinds = sum(kinds, collections.Counter())
    names = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    return {
        "operations": sum(operations),
        "with rule": sum(with_rule),
        "gathered": f"{sum(gathered)} ({names})" if names else "0",
        "whole": [
            node.name
            for program in programs
            for node in report.whole_products(program)
        ],
    }


def different_copies(strategy):
    """Names of a strategy's variables whose copies differ by a bit."""
    return [
        variable.name
        for variable in strategy.extended._by_number().values()
        if not is_sum(variable)
        and len({np.asarray(copy).tobytes() for copy in variable.values}) > 1
    ]


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
