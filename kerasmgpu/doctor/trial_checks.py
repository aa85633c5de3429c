"""Judges the trials of `--train`."""

from collections.abc import Iterator
from typing import Any

from kerasmgpu.doctor.catalogue import found
from kerasmgpu.doctor.findings import Finding, fine

_ROUNDING = 10.0
"""Factor up to which a difference counts as that of one rounding error."""


def judge_trials(trials: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    """Judges trials.

    Args:
        trials: Dictionary from names to what `trial.main` returned, or
            `{"error": why it failed}`.
    """
    for name, facts in trials.items():
        if "error" in facts:
            yield found("trial_failed", "training", f"{name}: {facts['error']}")
            continue
        distance, tolerance = facts["distance"], facts["tolerance"]
        text = f"{name}: differs from one device by {distance:.1e}"
        if distance <= tolerance:
            yield fine("trial", "training", f"{text} (at most {tolerance:.0e})")
        elif distance <= _ROUNDING * (facts["rounding"] or 0.0):
            text += f", one rounding error leads to {facts['rounding']:.1e}"
            yield found("trial_rounds", "training", text)
        else:
            text += f", at most {tolerance:.0e} was expected"
            yield found("trial_differs", "training", text)
