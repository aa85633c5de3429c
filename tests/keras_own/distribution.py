"""Keras's own tests of `keras.distribution`, on TensorFlow.

    python -m tests.keras_own.distribution
    python -m tests.keras_own.distribution test_e2e  # As `pytest -k`.
    python -m tests.keras_own.distribution --keras_hub=../keras-hub

They run on 8 logical CPU devices, as they lie in Keras's wheel (3.15 has them,
3.10 has not), also those that Keras skips unless its backend is JAX
(`unskipped.py`). The exit status is 0 only if all pass.

With `--keras_hub`, the folder of a checkout of KerasHub, whose wheel has no tests,
those of its tests run that set a distribution.
"""

import os
import sys

from absl import app, flags

from tests.keras_own import one_file
from tests.keras_own.unskipped import MODULES, OF_JAX_ALONE

FLAGS = flags.FLAGS
flags.DEFINE_string("keras_hub", None, "Checkout of KerasHub to test.")

MODULES_OF_HUB = (
    "keras_hub.src.models.gemma.gemma_backbone_test",
    "keras_hub.src.models.llama.llama_backbone_test",
    "keras_hub.src.models.gpt2.gpt2_causal_lm_test",
)


def run(select="", keras_hub=None):
    """Runs the tests, and prints which fail.

    Args:
        select: Expression as for `pytest -k`. Default: all tests, of KerasHub
            those with `distribution` in their names.
        keras_hub: Folder of KerasHub, whose tests run instead of Keras's.

    Returns:
        Number of tests that don't pass; 1 if none ran.
    """
    ran = failed = 0
    for module in MODULES_OF_HUB if keras_hub else MODULES:
        outcomes, errors, _ = one_file.run(
            module,
            "keras.distribution",
            select or ("distribution" if keras_hub else ""),
            checkout=keras_hub and os.path.abspath(keras_hub),
        )
        passed = [name for name in outcomes if outcomes[name] == "passed"]
        ran += len(outcomes)
        failed += len(outcomes) - len(passed)
        print(f"{module}: {len(passed)} of {len(outcomes)} tests pass")
        for name in sorted(set(outcomes) - set(passed)):
            print(f"  {name}: {outcomes[name]}\n{errors.get(name, '')}")
    if not select and not keras_hub:
        for name, why in OF_JAX_ALONE.items():
            print(f"left out: {name}: {why}")
    return failed if ran else 1


def main(argv):
    sys.exit(1 if run(*argv[1:2], keras_hub=FLAGS.keras_hub) else 0)


if __name__ == "__main__":
    app.run(main)
