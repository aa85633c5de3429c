"""Judges a comparison: in parity, rounding, or a difference.

`docs/verify.md` has the rules in words.
"""

from typing import Any

from kerasmgpu import distances
from kerasmgpu.verify import causes, rounding
from kerasmgpu.verify.comparison import Comparison, compare
from kerasmgpu.verify.outcome import Outcome
from kerasmgpu.verify.runs import Runs

EQUAL = "equal"
ROUNDING = "rounding"
DIFFERENT = "different"
"""Verdicts of a comparison."""


class Reference:
    """One device's run in one precision, with which others are compared.

    Attributes:
        dtype: String, the type in which the model computes.
        tolerance: Float, largest W that counts as parity.

    Args:
        one: Its `Outcome`.
        tolerance: Float, largest W that counts as parity, or `None` for that of
            the program's type.
        is_strict: Whether that is all that counts.
        float64: Whether Keras's float type was float64 in this run only.
    """

    def __init__(
        self,
        runs: Runs,
        one: Outcome,
        tolerance: float | None = None,
        is_strict: bool = False,
        float64: bool | None = None,
    ) -> None:
        self.dtype: str = one.facts["dtype"]
        self._runs, self._one = runs, one
        self._is_strict = is_strict
        self.tolerance = tolerance or distances.TOLERANCES[self.dtype]
        self._float64 = float64
        self._noises: list[Comparison] = []

    def compare(self, many: Outcome) -> Comparison:
        """Compares another run in the same precision with it."""
        return compare(self._one, many, self.tolerance)

    def is_rounding(self, comparison: Comparison) -> bool:
        """Whether one device differs as much when it is nudged."""
        for number in range(distances.NUDGES):
            if number == len(self._noises):
                aside = self._runs.outcome(
                    "one device, nudged by "
                    f"{distances.nudge_units(self.dtype)} units of {self.dtype}",
                    nudge=(distances.nudge(self.dtype), number),
                    float64=self._float64,
                )
                self._noises.append(self.compare(aside))
            if rounding.is_like_noise(comparison, self._noises, self.dtype):
                return True
        return False

    def verdict(
        self,
        comparison: Comparison,
        exact: tuple[Comparison, str] | None = None,
    ) -> str:
        """Returns the verdict on a run.

        Args:
            exact: Its comparison in float64, and the verdict on that; or `None`.
        """
        if exact is not None and exact[1] == DIFFERENT:
            return DIFFERENT
        if comparison.in_parity:
            return EQUAL
        if exact is not None and rounding.falls(
            comparison, exact[0], self.dtype
        ):
            return ROUNDING
        if not self._is_strict and self.is_rounding(comparison):
            return ROUNDING
        return DIFFERENT

    def entry(
        self, comparison: Comparison, many: Outcome, verdict: str
    ) -> dict[str, Any]:
        """Returns the JSON-serialisable results of a comparison."""
        made: dict[str, Any] = {
            "verdict": verdict,
            "checks": {
                name: {"distance": value, "tolerance": limit}
                for name, (value, limit) in comparison.checks.items()
            },
            "metrics": comparison.metrics,
            "first_step": comparison.first_step,
            "causes": [],
        }
        if not comparison.in_parity:
            first = comparison.first_layer()
            made["first_layer"] = first and first["name"]
            made["layers"] = comparison.layers
            made["update_ratio"] = comparison.update_ratio
            made["loss_ratio"] = comparison.loss_ratio
        if verdict == DIFFERENT:
            made["causes"] = causes.likely_causes(comparison, self._one, many)
        return made
