"""Why a test of Keras fails under our strategy, one by one."""

CAUSES = {}
"""`(module, test)` to a part of its error, and the cause in a sentence.

A module is named without `keras.src.`.
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
    part, cause = CAUSES.get((_short(module), test), (None, None))
    return cause if part is not None and part in error else None


def explained(module):
    """Names of the tests of a module that are said to fail."""
    return {test for known, test in CAUSES if known == _short(module)}


def _short(module):
    return module.removeprefix("keras.src.")
