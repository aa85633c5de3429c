"""A file of tests of `keras.distribution`, on TensorFlow and 8 logical CPUs.

Keras's lie in its wheel (3.15 has them, 3.10 has not); also those run that Keras
skips unless its backend is JAX (`unskipped.py`). KerasHub's, which its wheel does
not have, set a distribution.
"""

import os

from benchmarks.exactness.keras_own import files, one_file


class Measure:
    """Results of a file of tests.

    Args:
        case: `registry.Case`, whose name is the module's.
        select: Expression as for `pytest -k`. Default: all tests, of KerasHub
            those with `distribution` in their names.
        checkout: Folder of a checkout of KerasHub. Default: its tests don't run.
    """

    def __init__(self, case, select="", checkout=None):
        self._module, self._is_of_hub = case.name, case.group == files.HUB
        self._select = select or ("distribution" if self._is_of_hub else "")
        self._checkout = checkout

    def __call__(self, variant):
        """Runs the tests; see `comparison.Measure.__call__`."""
        if self._is_of_hub and not self._checkout:
            return {"missing": "no checkout of KerasHub"}
        outcomes, errors, _ = one_file.run(
            self._module,
            "keras.distribution",
            self._select,
            checkout=self._is_of_hub and os.path.abspath(self._checkout),
        )
        if not outcomes:
            return {"missing": "no test ran"}
        failed = sorted(t for t, how in outcomes.items() if how != "passed")
        return {
            "text": f"{len(outcomes) - len(failed)} of {len(outcomes)}",
            "notes": [f"{t}: {outcomes[t]} {errors.get(t)}" for t in failed],
            "in_parity": not failed,
        }
