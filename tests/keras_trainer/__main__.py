"""Runs Keras's own trainer tests under a strategy and explains each failure.

    python -m tests.keras_trainer                    # kerasmgpu, 2 replicas
    python -m tests.keras_trainer --strategy=stock   # tf.distribute's own
    python -m tests.keras_trainer --strategy=none    # one device
    python -m tests.keras_trainer --select=test_fit  # some of them

The tests are `keras/src/trainers/trainer_test.py` as it lies in Keras's wheel.
Replicas are logical CPU devices. The exit status is 0 only if every failure is
one that `explanations.py` explains.
"""

import os
import sys

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf
from absl import app, flags

from kerasmgpu.devices import make_logical_cpus
from tests.keras_trainer.explanations import explanation
from tests.keras_trainer.plugin import UnderStrategy

MODULE = "keras.src.trainers.trainer_test"
DEVICES = ["CPU:0", "CPU:1"]

_STRATEGY = flags.DEFINE_enum(
    "strategy",
    "ours",
    ["ours", "stock", "none"],
    "kerasmgpu.MirroredStrategy, tf.distribute.MirroredStrategy or one device.",
)
_SELECT = flags.DEFINE_string(
    "select", "", "Run only tests that match this, as `pytest -k` does."
)


def run(strategy="ours", select=""):
    """Runs the tests in this process and prints what they did.

    Args:
        strategy: `"ours"`, `"stock"` or `"none"`.
        select: Expression as for `pytest -k`. Default: all tests.

    Returns:
        Number of failures without an explanation; 1 if no test ran.
    """
    make_logical_cpus(len(DEVICES))
    results = UnderStrategy(_make_strategy(strategy))
    # Neither the settings nor the conftest of the project are for these tests.
    options = ["--noconftest", "-c", os.devnull, "-p", "no:cacheprovider"]
    options += ["-q", "--tb=short", "--no-header", "-k", select]
    pytest.main([*options, "--pyargs", MODULE], plugins=[results])
    _print_failures(results)
    counts = results.counts()
    explained = sum(
        explanation(name, error) is not None
        for name, error in results.errors.items()
    )
    print(
        f"strategy={strategy}: {counts['passed']} passed, "
        f"{counts['failed']} failed ({explained} explained), "
        f"{counts['passed'] + counts['failed']} run, "
        f"{counts['skipped']} skipped"
    )
    ran = counts["passed"] + counts["failed"]
    return counts["failed"] - explained if ran else 1


def _make_strategy(name):
    if name == "none":
        return None
    if name == "stock":
        return tf.distribute.MirroredStrategy(DEVICES)
    import kerasmgpu

    return kerasmgpu.MirroredStrategy(DEVICES)


def _print_failures(results):
    for name, error in sorted(results.errors.items()):
        print(
            f"{name}: {explanation(name, error) or f'NOT EXPLAINED: {error}'}"
        )


def main(argv):
    del argv
    sys.exit(1 if run(_STRATEGY.value, _SELECT.value) else 0)


if __name__ == "__main__":
    app.run(main)
