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

from tests.keras_own import files
from tests.keras_own.comparison import run

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


def main(argv):
    del argv
    unexplained = run(_STRATEGY.value, _FILES.value, _SELECT.value)
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    app.run(main)
