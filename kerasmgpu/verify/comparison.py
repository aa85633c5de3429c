"""Distances between two runs of a program, in plain NumPy.

`distances` defines that of weights, W. It is computed separately for trainable
weights and for other state (a counter that grows by the batch size would hide
everything else); the larger one counts.
"""

import dataclasses
from typing import Any

import numpy as np

from kerasmgpu.distances import (
    TOLERANCES,
    log_tolerance,
    relative_difference,
    weight_differences,
    wide,
)
from kerasmgpu.verify.outcome import Outcome

WEIGHTS, SLOTS = "weights (W)", "optimizer's variables"
COPIES = "replicas' copies"
"""Names of `Comparison.checks`, as the tables have them."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Distances of a run from the reference, without units.

    Args:
        tolerance: Float, largest W that counts as parity.
        log_tolerance: Float, largest relative difference of logs that does.
        weights: Float, W after the last step.
        slots: Float, the largest difference of optimizers' variables after any
            step / the largest update of those of the same name. A momentum is
            linear in the gradients, which Adam's updates are not.
        losses: Float, largest relative difference of losses, of the epoch and
            of evaluation.
        metrics: Dictionary from a metric's name to the largest relative
            difference of its results.
        step_logs: Float, largest relative difference of all steps' logs.
        predictions: Float, largest relative difference of predictions.
        spread: Dictionary from a variable's path to the largest difference
            between the replicas' copies of it.
        first_step: Integer, the first step after which W is above the
            tolerance, or `None`.
        layers: List of dictionaries, one per layer in the model's order, with
            `"name"`, the distances of its `"output"` in the first step and of
            its `"trainable"` weights and `"state"` after `first_step` (each
            `None` if there is none; without `first_step`, after the last).
        update_ratio: Float, this run's first update of the trainable weights
            divided by the reference's (least squares), or `None`.
        loss_ratio: Float, the same ratio of the first step's logged loss.
        by_variable: For each step, the distance of each variable of the model,
            then of the optimizers.
    """

    tolerance: float
    log_tolerance: float
    weights: float
    slots: float
    losses: float
    metrics: dict[str, float]
    step_logs: float
    predictions: float
    spread: dict[str, float]
    first_step: int | None
    layers: list[dict[str, Any]]
    update_ratio: float | None
    loss_ratio: float | None
    by_variable: list[list[float]]

    @property
    def checks(self) -> dict[str, tuple[float, float]]:
        """`{name: (distance, its tolerance)}`, in the order of the table."""
        metrics = max(self.metrics.values(), default=0.0)
        spread = max(self.spread.values(), default=0.0)
        return {
            WEIGHTS: (self.weights, self.tolerance),
            SLOTS: (self.slots, self.tolerance),
            "losses": (self.losses, self.log_tolerance),
            "metrics": (metrics, self.log_tolerance),
            "step logs": (self.step_logs, self.log_tolerance),
            "predictions": (self.predictions, self.log_tolerance),
            COPIES: (spread, 0.0),
        }

    @property
    def in_parity(self) -> bool:
        """Whether every distance is within its tolerance."""
        return all(value <= limit for value, limit in self.checks.values())

    @property
    def is_of_logs(self) -> bool:
        """Whether weights, and what optimizers keep, are within the tolerance."""
        return max(self.weights, self.slots) <= self.tolerance

    def first_layer(self) -> dict[str, Any] | None:
        """Returns the first layer that differs, or `None`.

        In the model's order, that is the first layer whose output differs in
        the first step, before any update; else the first whose state differs
        after `first_step`; else the first whose trainable weights do.
        """
        for kind in ("output", "state", "trainable"):
            is_output = kind == "output"
            limit = self.log_tolerance if is_output else self.tolerance
            for layer in self.layers:
                if differs(layer[kind], limit):
                    return layer
        return None


def differs(distance: float | None, tolerance: float) -> bool:
    """Whether a distance, which may be `None`, is above its tolerance."""
    return distance is not None and distance > tolerance


def compare(
    one: Outcome, many: Outcome, tolerance: float | None = None
) -> Comparison:
    """Compares a run, `many`, with the reference, `one`.

    Args:
        tolerance: Float. Default: `TOLERANCES` of the model's float type.
    """
    if tolerance is None:
        tolerance = TOLERANCES[one.facts["dtype"]]
    start = one.start()
    kinds = [variable["kind"] for variable in one.facts["variables"]]
    first_step, by_variable, slots = None, [], 0.0
    for step in one.facts["steps"]:
        distances = weight_differences(
            start, one.weights(step), many.weights(step), kinds, step
        )
        of_slots = _slot_differences(one, many, step)
        by_variable.append([*distances, *of_slots])
        slots = max([slots, *of_slots])
        if max(distances, default=0.0) > tolerance and first_step is None:
            first_step, at_first = step, distances
    if first_step is None:
        at_first = distances
    first_logs = [outcome.facts["step_logs"][0] for outcome in (one, many)]
    return Comparison(
        tolerance=tolerance,
        log_tolerance=log_tolerance(tolerance),
        slots=slots,
        by_variable=by_variable,
        weights=max(distances, default=0.0),
        losses=max(_of_results(one, many, True).values(), default=0.0),
        metrics=_of_results(one, many, False),
        step_logs=max(
            (
                relative_difference(list(a.values()), list(b.values()))
                for a, b in zip(one.facts["step_logs"], many.facts["step_logs"])
            ),
            default=0.0,
        ),
        predictions=_of_leaves(one.predictions(), many.predictions()),
        spread=many.facts["spread"],
        first_step=first_step,
        layers=_of_layers(one, many, at_first),
        update_ratio=_update_ratio(start, one, many, kinds),
        loss_ratio=_ratio(*(logs.get("loss", 0.0) for logs in first_logs)),
    )


def _slot_differences(one: Outcome, many: Outcome, step: int) -> list[float]:
    """Returns the distance of each of the optimizers' variables after a step."""
    kinds = one.facts["slots"][one.facts["steps"].index(step)]
    a, b = one.slots(step), many.slots(step)
    if len(a) != len(b):
        return [float("inf")]
    zeros = [np.zeros_like(array) for array in a]
    return weight_differences(zeros, a, b, kinds, step)


def first_not_finite(outcome: Outcome) -> int | None:
    """Returns the first step after which a weight is not finite, or `None`."""
    for step in outcome.facts["steps"]:
        for array in outcome.weights(step):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                return step
    return None


def _of_results(one: Outcome, many: Outcome, losses: bool) -> dict[str, float]:
    """Returns relative differences of the epoch's and evaluation's results."""
    distances: dict[str, float] = {}
    for source in ("history", "evaluation"):
        a, b = one.facts[source] or {}, many.facts[source] or {}
        for name in a:
            if (name == "loss" or name.endswith("_loss")) != losses:
                continue
            distance = relative_difference(a[name], b.get(name, np.nan))
            distances[name] = max(distance, distances.get(name, 0.0))
    return distances


def _of_leaves(one: list[np.ndarray], many: list[np.ndarray]) -> float:
    if len(one) != len(many):
        return float("inf")
    return max(map(relative_difference, one, many), default=0.0)


def _of_layers(
    one: Outcome, many: Outcome, distances: list[float]
) -> list[dict[str, Any]]:
    """Returns `Comparison.layers`."""
    ours, theirs = one.layer_outputs(), many.layer_outputs()
    layers: dict[str, dict[str, Any]] = {
        name: {"name": name, "output": None, "trainable": None, "state": None}
        for name in one.facts["layers"]
    }
    for name, leaves in ours.items():
        layers[name]["output"] = _of_leaves(leaves, theirs.get(name, []))
    for variable, distance in zip(one.facts["variables"], distances):
        layer, kind = layers[variable["layer"]], variable["kind"]
        if kind != "seed":
            layer[kind] = max(distance, layer[kind] or 0.0)
    kinds = ("output", "trainable", "state")
    return [
        layer
        for layer in layers.values()
        if any(layer[kind] is not None for kind in kinds)
    ]


def _update_ratio(
    start: list[np.ndarray], one: Outcome, many: Outcome, kinds: list[str]
) -> float | None:
    """Returns `Comparison.update_ratio`."""
    step = one.facts["steps"][0]
    along = total = 0.0
    for before, a, b, kind in zip(
        start, one.weights(step), many.weights(step), kinds
    ):
        if kind == "trainable" and a.shape == b.shape:
            update = wide(a) - wide(before)
            along += float(np.sum(update * (wide(b) - wide(before))))
            total += float(np.sum(update * update))
    return _ratio(total, along)


def _ratio(one: float, many: float) -> float | None:
    ratio = many / one if one else float("nan")
    return ratio if np.isfinite(ratio) else None
