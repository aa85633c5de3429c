"""Proves without a GPU that a model trains on several, and rightly.

    python -m kerasmgpu.prove my_module:build --replicas=8 --gpu=H100-SXM

`build` is a function that returns a compiled Keras model; its data are given as
for `kerasmgpu verify`. Each line says what it proves, and the last ones what
they don't. The exit status is 0 only if nothing speaks against the step.
"""

import json
import sys

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import flag_parsing, reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.hardware.data_sheets import DEVICES
from kerasmgpu.prove import prove
from kerasmgpu.strategy_settings import SHARDS


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    names = ", ".join(DEVICES)
    flag_parsing.define_arguments(
        prove,
        flag_values,
        gpu=f"The GPU, whose memory the step is to fit, and for which XLA compiles: "
        f"24GiB, a file *.txtpb, or one of {names}.",
        shard=f"What is divided by the replicas, of {', '.join(SHARDS)}.",
        shard_over="Replicas over which a variable is divided; all by default.",
    )
    flag_parsing.define_output(flag_values)


def main(argv: list[str]) -> None:
    """Proves the model in `argv`; exits with status 1 if something fails."""
    build, output = flag_parsing.only_function(argv), flags.FLAGS.output
    reports.require_file_in_folder(output)
    report = prove(build, **flag_parsing.arguments(prove))
    if output:
        write_text(output, json.dumps(report, indent=2) + "\n")
    sys.exit(0 if report["is_proved"] else 1)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
