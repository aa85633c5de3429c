"""A pytest plugin that runs Keras's own tests under a strategy."""

import collections
import importlib.util
import sys
import types

import tensorflow as tf


class UnderStrategy:
    """Makes a strategy the default one during each of Keras's tests.

    Keras's tests know nothing of strategies: what they build, compile and fit
    is distributed because their `setUp` ends in
    `tf.distribute.experimental_set_strategy`. Results are kept by test.

    Args:
        strategy: A `tf.distribute.Strategy`, or `None` for one device.

    Example:

    ```python
    results = UnderStrategy(kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"]))
    pytest.main(["--pyargs", MODULE], plugins=[results])
    print(results.outcomes)
    ```
    """

    def __init__(self, strategy):
        self.strategy = strategy
        # {test name: "passed", "failed" or "skipped"}
        self.outcomes = {}
        # {test name: last line of the error}
        self.errors = {}

    def pytest_configure(self, config):
        config.addinivalue_line(
            "markers", "requires_trainable_backend: Keras's own marker"
        )

    def pytest_collection(self, session):
        """Prepares Keras's base class before its test module is imported."""
        _stand_in_for_jax()
        from keras.src.testing import TestCase

        _after_set_up(TestCase, self._distribute)

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.outcomes[name] = "failed"
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash else str(report.longrepr)
            self.errors[name] = (message.strip() or "?").splitlines()[0]
        elif report.skipped or report.when == "call":
            self.outcomes.setdefault(name, report.outcome)

    def counts(self):
        """Number of tests by outcome."""
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


def _stand_in_for_jax():
    """Lets the test module be imported where JAX is not installed.

    It imports JAX at its top, for tests that are skipped on TensorFlow.
    """
    if importlib.util.find_spec("jax") is None:
        sys.modules["jax"] = types.ModuleType("jax")
