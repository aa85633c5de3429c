"""Keras's own tests of `keras.distribution`, on TensorFlow.

    python -m tests.keras_own.distribution
    python -m tests.keras_own.distribution test_e2e  # As `pytest -k`.

They run on 8 logical CPU devices, as they lie in Keras's wheel (3.15 has them,
3.10 has not), also those that Keras skips unless its backend is JAX
(`unskipped.py`). The exit status is 0 only if all pass.
"""

import sys

from absl import app

from tests.keras_own import one_file
from tests.keras_own.unskipped import MODULES, OF_JAX_ALONE


def run(select=""):
    """Runs the tests, and prints which fail.

    Args:
        select: Expression as for `pytest -k`. Default: all tests.

    Returns:
        Number of tests that don't pass; 1 if none ran.
    """
    ran = failed = 0
    for module in MODULES:
        outcomes, errors, _ = one_file.run(module, "keras.distribution", select)
        passed = [name for name in outcomes if outcomes[name] == "passed"]
        ran += len(outcomes)
        failed += len(outcomes) - len(passed)
        print(f"{module}: {len(passed)} of {len(outcomes)} tests pass")
        for name in sorted(set(outcomes) - set(passed)):
            print(f"  {name}: {outcomes[name]}\n{errors.get(name, '')}")
    if not select:
        for name, why in OF_JAX_ALONE.items():
            print(f"left out: {name}: {why}")
    return failed if ran else 1


def main(argv):
    sys.exit(1 if run(*argv[1:2]) else 0)


if __name__ == "__main__":
    app.run(main)
