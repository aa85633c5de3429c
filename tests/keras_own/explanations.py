"""Why a test of Keras fails under our strategy, one by one."""

import re

STEP_WITHOUT_DATA = (
    r"Other numbers:(\ncall \d+, fit, optimizer: array 0 is int\d+\[\] [^\n]*)+",
    "on one device the optimizer's count of steps does not wait for the batch, "
    "so the step that finds the end of the data is counted too; here it is not",
)

CAUSES = {}
"""`(module, test)` to what its error matches, and the cause in a sentence.

A module is named without `keras.src.`. The error is what pytest prints, or the
numbers that differ; it must match as a whole.
"""


def explanation(module, test, error):
    """Why a test fails though it passes on one device, in words.

    Args:
        module: Name of the test's module.
        test: Name of the test.
        error: Its error. A cause explains only the error that it names.

    Returns:
        A string, or `None` if that is not explained.
    """
    pattern, cause = CAUSES.get((_short(module), test), (None, None))
    if pattern is None or not re.fullmatch(pattern, error.strip(), re.DOTALL):
        return None
    return cause


def explained(module):
    """Names of the tests of a module that are said to fail."""
    return {test for known, test in CAUSES if known == _short(module)}


def _short(module):
    return module.removeprefix("keras.src.")
