"""Keras's own tests under a strategy against the same tests on one device."""

import sys

from tests.keras_own import files, numbers, one_file
from tests.keras_own.explanations import explained, explanation


def run(strategy="ours", selection=(), select=""):
    """Runs Keras's tests and prints what they did.

    Args:
        strategy: `"ours"`, `"stock"` or `"none"`.
        selection: List of groups and files, as for `files.modules`.
        select: Expression as for `pytest -k`. Default: all tests.

    Returns:
        Number of failures without an explanation; 1 if no test ran.
    """
    ran = passed = unexplained = 0
    causes = []
    for module in files.modules(selection):
        one = outcomes, errors, _ = one_file.run(module, "none", select)
        passing = [test for test in outcomes if outcomes[test] == "passed"]
        ran += len(passing)
        print(f"{module}: one device: {_counts(outcomes)}", flush=True)
        _print_errors(errors)
        if strategy != "none" and passing:
            many = one_file.run(module, strategy, select)
            failures = failures_of(one, many)
            passed += len(passing) - len(failures)
            print(f"{module}: {strategy}: {_counts(many[0])}", flush=True)
            unexplained += _print_failures(module, failures, causes)
            if strategy == "ours" and not select:
                for test in sorted(explained(module) - set(failures)):
                    print(f"  {test}: passes, but there is an explanation")
    if strategy == "none":
        print(f"strategy=none: {ran} passed")
    else:
        print(
            f"strategy={strategy}: of {ran} tests that pass on one device "
            f"{passed} pass, {len(causes)} failures are explained, "
            f"{unexplained} are not"
        )
    return unexplained if ran else 1


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


def _counts(outcomes):
    values = list(outcomes.values())
    return ", ".join(
        f"{values.count(outcome)} {outcome}"
        for outcome in ("passed", "failed", "skipped")
    )


def _print_failures(module, failures, causes):
    """Number of failures without an explanation; `causes` gets the others'."""
    unexplained = 0
    for test, error in sorted(failures.items()):
        cause = explanation(module, test, error)
        if cause is not None:
            causes.append(cause)
            print(f"  {test}: {cause}")
        else:
            unexplained += 1
            print(f"  {test}: NOT EXPLAINED\n{_indented(error)}")
    sys.stdout.flush()
    return unexplained


def _print_errors(errors):
    for test, error in sorted(errors.items()):
        print(f"  {test}: {error.strip().splitlines()[-1]}")


def _indented(text):
    return "\n".join(f"    {line}" for line in text.strip().splitlines())
