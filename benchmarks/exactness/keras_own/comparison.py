"""A file of Keras's own tests under a strategy, and the same on one device."""

import functools

from benchmarks.exactness.keras_own import numbers, one_file
from benchmarks.exactness.keras_own.explanations import explained, explanation


class Measure:
    """Results of a file of tests; on one device it runs once.

    Args:
        case: `registry.Case`, whose name is the module's.
        select: Expression as for `pytest -k`. Default: all tests.
    """

    def __init__(self, case, select=""):
        self._module, self._select = case.name, select

    @functools.cached_property
    def one(self):
        """See `one_file.run`."""
        return one_file.run(self._module, "none", self._select)

    def __call__(self, variant):
        """Compares a contender, `"stock, 2"` or `"kerasmgpu, 2"`.

        Returns:
            `{"text": how many tests pass, "notes": what fails and why,
            "in_parity": whether all failures are explained}`.
        """
        passing = [t for t, found in self.one[0].items() if found == "passed"]
        if not passing:
            return {"missing": "no test passes on one device"}
        contender = variant.partition(",")[0]
        many = one_file.run(self._module, contender, self._select)
        failures = failures_of(self.one, many)
        causes = {
            test: explanation(self._module, test, error)
            for test, error in sorted(failures.items())
        }
        notes = [
            f"{test}: {cause or f'NOT EXPLAINED: {failures[test]}'}"
            for test, cause in causes.items()
        ]
        if contender == "kerasmgpu" and not self._select:
            notes += [
                f"{test}: passes, but there is an explanation"
                for test in sorted(explained(self._module) - set(failures))
            ]
        text = f"{len(passing) - len(failures)} of {len(passing)}"
        num_explained = sum(map(bool, causes.values()))
        if num_explained:
            text += f", {num_explained} explained"
        in_parity = num_explained == len(failures)
        return {"text": text, "notes": notes, "in_parity": in_parity}


def failures_of(one, many):
    """Tests that pass on one device only, or train another model there.

    Args:
        one: `(outcomes, errors, numbers)` of `plugin.UnderStrategy` on one
            device.
        many: Those under a strategy.

    Returns:
        Dictionary from tests to errors.
    """
    failures = {}
    for test, outcome in one[0].items():
        if outcome != "passed":
            continue
        if many[0].get(test) != "passed":
            outcome = many[0].get(test, "not run")
            failures[test] = many[1].get(test, outcome)
        else:
            found = numbers.differences(one[2][test], many[2][test])
            if found:
                failures[test] = "\n".join(["Other numbers:", *found])
    return failures
