"""A pytest plugin that runs Keras's own tests under a strategy."""

import collections
import importlib.util
import sys
import types

import tensorflow as tf


class UnderStrategy:
    """Makes a strategy the default one during each of Keras's tests.

    Keras's tests know nothing of strategies. What they build, compile and fit
    is distributed because their `setUp` ends in
    `tf.distribute.experimental_set_strategy`; a cleanup takes it back.

    Args:
        strategy: A `tf.distribute.Strategy`, or `None` for one device.

    Attributes:
        outcomes: Test name to `"passed"`, `"failed"` or `"skipped"`.
        errors: Name of each failed test to the first line of its error.

    Example:

    ```python
    results = UnderStrategy(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    pytest.main(["--pyargs", "keras.src.trainers.trainer_test"], [results])
    print(results.counts())
    ```
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self.outcomes = {}
        self.errors = {}

    def pytest_configure(self, config):
        """Declares the marker that Keras's own set-up would declare."""
        config.addinivalue_line(
            "markers", "requires_trainable_backend: skipped on NumPy"
        )

    def pytest_collection(self, session):
        """Prepares Keras's base class before its test module is imported."""
        if importlib.util.find_spec("jax") is None:
            # The module imports JAX at its top, for tests that TensorFlow
            # skips; an empty module lets the others be collected.
            sys.modules["jax"] = types.ModuleType("jax")
        from keras.src.testing import TestCase

        _after_set_up(TestCase, self._distribute)

    def pytest_collection_finish(self, session):
        """Takes the stand-in for JAX away, so that tests see it is missing."""
        if getattr(sys.modules.get("jax"), "__spec__", None) is None:
            sys.modules.pop("jax", None)

    def pytest_runtest_logreport(self, report):
        """Keeps the outcome of a test; a failure of any phase counts."""
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.outcomes[name] = "failed"
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash else str(report.longrepr)
            self.errors[name] = message.strip().partition("\n")[0]
        elif report.skipped or report.when == "call":
            self.outcomes.setdefault(name, report.outcome)

    def counts(self):
        """Number of tests by outcome, a `collections.Counter`."""
        return collections.Counter(self.outcomes.values())

    def _distribute(self, test):
        if self.strategy is not None:
            tf.distribute.experimental_set_strategy(self.strategy)
            test.addCleanup(tf.distribute.experimental_set_strategy, None)


def _after_set_up(test_case, function):
    """Calls `function(test)` at the end of `test_case.setUp`."""
    set_up = test_case.setUp

    def set_up_and_more(self):
        set_up(self)
        function(self)

    test_case.setUp = set_up_and_more
