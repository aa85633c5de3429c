"""Keras's own tests under 2 replicas, each against one device.

    python -m tests.keras_own                             # kerasmgpu
    python -m tests.keras_own --strategy=stock            # tf.distribute's own
    python -m tests.keras_own --strategy=none             # one device only
    python -m tests.keras_own --files=callbacks,lstm_test # groups and files
    python -m tests.keras_own --select=test_fit           # some tests

The tests are those of `files.py` as they lie in Keras's wheel. Each file runs
in a process of its own, first on one device and then under the strategy, whose
replicas are logical CPU devices. A test that passes on one device must pass
under the strategy, and all that its models return, train and keep there must be
what they have on one device (`numbers.py`). The exit status is 0 only if every
failure is one that `explanations.py` explains. All of it takes an hour.
"""

import sys

from absl import app, flags

from tests.keras_own import files, numbers, one_file
from tests.keras_own.explanations import explained, explanation

_STRATEGY = flags.DEFINE_enum(
    "strategy",
    "ours",
    ["ours", "stock", "none"],
    "kerasmgpu.MirroredStrategy, tf.distribute.MirroredStrategy or one device.",
)
_FILES = flags.DEFINE_list(
    "files", [], f"Groups ({', '.join(files.FOLDERS)}) and files. Default: all."
)
_SELECT = flags.DEFINE_string(
    "select", "", "Run only tests that match this, as `pytest -k` does."
)


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
                    print(f"  {test}: PASSES, but there is an explanation")
                    unexplained += 1
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
            words = numbers.difference(one[2][test], many[2][test])
            if words is not None:
                failures[test] = f"Other numbers: {words}"
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


def main(argv):
    del argv
    unexplained = run(_STRATEGY.value, _FILES.value, _SELECT.value)
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    app.run(main)
