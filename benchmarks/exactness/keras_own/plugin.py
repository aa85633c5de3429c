"""A pytest plugin that runs Keras's own tests under a strategy."""

import importlib.util
import re
import sys
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.exactness.keras_own.numbers import Numbers

SEED = 1337


class UnderStrategy:
    """Makes a strategy the default one during each of Keras's tests.

    Keras's tests know nothing of strategies. What they build, compile and fit
    is distributed because their `setUp` ends in
    `tf.distribute.experimental_set_strategy`; a cleanup takes it back. It also
    seeds all random number generators, so that each test's models can be
    compared with those that it trains on one device.

    Args:
        strategy: A `tf.distribute.Strategy`, or `None` for one device.

    Attributes:
        outcomes: Test to `"passed"`, `"failed"` or `"skipped"`. A test is
            `"ClassName::test_name"`; a module that can't be imported counts as
            the failed test `"import"`.
        errors: Failed test to its error, as pytest prints it.
        numbers: Test to a list with what each call of a model's `fit` and the
            like made: `numbers.Numbers.calls`.

    Example:

    ```python
    results = UnderStrategy(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    pytest.main(["--pyargs", "keras.src.trainers.trainer_test"], [results])
    print(results.outcomes)
    ```
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self.outcomes = {}
        self.errors = {}
        self.numbers = {}
        self._recorder = Numbers()

    def pytest_configure(self, config):
        """Declares the markers that Keras's own set-up would declare."""
        for marker in ("requires_trainable_backend", "multi_device"):
            config.addinivalue_line("markers", f"{marker}: of Keras's own")

    def pytest_collection(self, session):
        """Prepares Keras's base class before its test module is imported."""
        if importlib.util.find_spec("jax") is None:
            # Some modules import JAX at their top, for tests that TensorFlow
            # skips; an empty module lets the others be collected.
            sys.modules["jax"] = types.ModuleType("jax")
        # Keras's own one does not lie in its wheel; a few modules import it.
        conftest = types.ModuleType("conftest")
        conftest.skip_if_backend = _skip_if_backend
        sys.modules["conftest"] = conftest
        from keras.src.testing import TestCase

        _after_set_up(TestCase, self._distribute)
        np.random.seed = _always_seeded(np.random.seed)
        self._recorder.install()

    def pytest_collection_finish(self, session):
        """Takes the stand-in for JAX away, so that tests see it is missing."""
        if getattr(sys.modules.get("jax"), "__spec__", None) is None:
            sys.modules.pop("jax", None)

    def pytest_collectreport(self, report):
        """Keeps why a module could not be imported."""
        if report.failed:
            self.outcomes["import"] = "failed"
            self.errors["import"] = report.longreprtext

    def pytest_runtest_setup(self, item):
        """Keeps what models do in a test apart from other tests."""
        self._recorder.calls = self.numbers[_name(item.nodeid)] = []

    def pytest_runtest_logreport(self, report):
        """Keeps the outcome of a test; a failure of any phase counts."""
        name = _name(report.nodeid)
        if report.failed:
            self.outcomes[name] = "failed"
            self.errors[name] = report.longreprtext
        elif report.skipped or report.when == "call":
            self.outcomes.setdefault(name, report.outcome)

    def _distribute(self, test):
        keras.utils.set_random_seed(SEED)
        if self.strategy is not None:
            tf.distribute.experimental_set_strategy(self.strategy)
            test.addCleanup(tf.distribute.experimental_set_strategy, None)


def _skip_if_backend(backend, reason):
    """Marks a test that is not for one of Keras's backends."""
    return pytest.mark.skipif(keras.backend.backend() == backend, reason=reason)


def _always_seeded(seed):
    """`np.random.seed`, for which `None` is no new seed each time.

    Keras's `get_test_data` passes it.
    """
    return lambda number=None: seed(SEED if number is None else number)


def _name(node):
    """Name of a test, which is the same in every process."""
    return re.sub(r"0x[0-9a-f]+", "0x", node.partition("::")[2])


def _after_set_up(test_case, function):
    """Calls `function(test)` at the end of `test_case.setUp`."""
    set_up = test_case.setUp

    def set_up_and_more(self):
        set_up(self)
        function(self)

    test_case.setUp = set_up_and_more
