"""Trains a model on one device and on replicas, and says how far they part."""

import collections
import dataclasses

import numpy as np

from kerasmgpu.partitioner.runtime import report
from kerasmgpu.partitioner.runtime.one_device import is_sum
from tests.parity import harness


@dataclasses.dataclass
class Figures:
    """What was measured of one model on some number of replicas.

    Attributes:
        distances: `{what: distance}`, see `harness.distances`.
        copies: Names of variables whose copies are not bit-identical.
        data_changed: Whether `fit` changed the user's arrays.
        operations, with_rule, gathered, types: See `report.counts`; of all
            training steps that were traced.
        whole: Names of products of whole batches, which no replicas share.
    """

    distances: dict
    copies: list
    data_changed: bool
    operations: int
    with_rule: int
    gathered: int
    types: dict
    whole: list

    @property
    def worst(self):
        """The largest distance, and of what it is."""
        return max((value, what) for what, value in self.distances.items())


def outcome(model, strategy=None):
    """Trains a model; returns the `harness.Outcome` and the trained model."""
    made = []

    def make():
        made.append(model.make())
        # On one device Keras would have chosen XLA, which takes long.
        made[-1].model.jit_compile = model.jit_compile
        return made[-1]

    with model.in_precision():
        result = harness.run(
            dataclasses.replace(model, make=make),
            strategy,
            evaluates=model.evaluates,
            predicts=model.predicts,
        )
    return result, made[-1].model


def measure(model, strategy, one=None):
    """Trains a model on one device and on a strategy's replicas.

    Args:
        model: `registry.Model`.
        strategy: A strategy of kerasmgpu.
        one: `harness.Outcome` of one device, if it is there already.

    Returns:
        `Figures`.
    """
    if one is None:
        one, _ = outcome(model)
    many, trained = outcome(model, strategy)
    distances = harness.distances(one, many)
    distances["each weight"] = distance_of_each_weight(one, many)
    operations, with_rule, gathered = 0, 0, 0
    types = collections.Counter()
    whole = []
    for program in trained.train_function.programs:
        numbers = report.counts(program)
        operations += numbers[0]
        with_rule += numbers[1]
        gathered += numbers[2]
        types += numbers[3]
        whole += [node.name for node in report.whole_products(program)]
    return Figures(
        distances,
        different_copies(strategy),
        many.data_changed,
        operations,
        with_rule,
        gathered,
        dict(types),
        whole,
    )


def distance_of_each_weight(one, many):
    """Largest difference of a weight, over its own largest update.

    Weights that training moves little are not hidden behind those that it
    moves much; below a thousandth of the largest update of all, though, what
    is left is rounding.
    """
    before = one.before
    if len(before) != len(one.weights):
        before = [np.zeros_like(weight) for weight in one.weights]
    updates = [
        np.abs(_wide(a) - _wide(b)).max(initial=0)
        for a, b in zip(one.weights, before, strict=True)
    ]
    least = 1e-3 * max(updates)
    return max(
        float(np.abs(_wide(a) - _wide(b)).max(initial=0) / max(update, least))
        for a, b, update in zip(one.weights, many.weights, updates, strict=True)
    )


def different_copies(strategy):
    """Names of a strategy's variables whose copies differ by a bit."""
    return [
        variable.name
        for variable in strategy.extended._by_number().values()
        if not is_sum(variable)
        and len({np.asarray(copy).tobytes() for copy in variable.values}) > 1
    ]


def _wide(array):
    return np.asarray(array).astype("float64")
