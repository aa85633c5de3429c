"""Checks that a model trains the same on N replicas as on one device.

    python -m kerasmgpu.verify my_module:build --replica_counts=2,4

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. No GPU is needed: replicas are logical
CPU devices. The exit status is 0 only if every run is in parity with one
device.
"""

import pathlib
import sys

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.errors import InputError
from kerasmgpu.replica_arithmetic import SHARDS
from kerasmgpu.verify import verification, verify

_DEFAULTS = flag_parsing.defaults(verify)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flags.DEFINE_list(
        "replica_counts",
        [str(count) for count in _DEFAULTS["replica_counts"]],
        "Numbers of replicas to compare with one device.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "data",
        None,
        "MODULE:FUNCTION or FILE.py:FUNCTION that returns arrays (x, y), (x, "
        "y, sample_weight), or batches as tf.data.Dataset or PyDataset.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "steps",
        _DEFAULTS["steps"],
        "Steps to train.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "global_batch_size",
        None,
        "Rows of a batch of arrays; the last batch is smaller. Default: at "
        "most 26, so that replicas get unequal shares.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "tolerance",
        None,
        "Largest weight difference by largest update that counts as parity. "
        "Default: 1e-5 in float32, 1e-12 in float64.",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "float64",
        _DEFAULTS["float64"],
        "Trains in float64, where rounding errors hide no fault.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "shard",
        None,
        SHARDS,
        "What replicas divide instead of copying it, whatever its size.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "micro_batches",
        _DEFAULTS["micro_batches"],
        "Micro-batches of each replica.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed",
        _DEFAULTS["seed"],
        "Seed of Python, NumPy and Keras in each run.",
        lower_bound=0,
        upper_bound=2**32 - 1,  # NumPy's seeds have 32 bits.
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "timeout_seconds",
        _DEFAULTS["timeout_seconds"],
        "How long each run may take, in seconds.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "output",
        None,
        "File to write the report to, as JSON.",
        flag_values=flag_values,
    )
    # Flags may follow the function's name.
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Verifies the model in `argv`; exits with status 1 if not in parity."""
    build = flag_parsing.only_function(argv)
    values = flags.FLAGS
    folder = pathlib.Path(values.output or ".").resolve().parent
    if not folder.is_dir():
        raise InputError(f"no such folder for --output: {folder}")
    result = verification.run(
        build,
        values.data,
        flag_parsing.counts_of_flag(values.replica_counts),
        steps=values.steps,
        global_batch_size=values.global_batch_size,
        tolerance=values.tolerance,
        float64=values.float64,
        shard=values.shard,
        micro_batches=values.micro_batches,
        seed=values.seed,
        timeout_seconds=values.timeout_seconds,
        show=True,
    )
    if values.output:
        write_text(values.output, verification.to_json(result))
    sys.exit(0 if result["in_parity"] else 1)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
