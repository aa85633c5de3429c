"""Checks that a model trains the same on N replicas as on one device.

    python -m kerasmgpu.verify my_module:build --replica_counts=2,4

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. No GPU is needed: replicas are logical
CPU devices. The exit status is 0 only if every run is in parity with one
device.
"""

import sys

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import flag_parsing, reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.verify import verification, verify


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(verify, flag_values)
    flag_parsing.define_output(flag_values)


def main(argv: list[str]) -> None:
    """Verifies the model in `argv`; exits with status 1 if not in parity."""
    build, output = flag_parsing.only_function(argv), flags.FLAGS.output
    reports.require_file_in_folder(output)
    result = verify(build, **flag_parsing.arguments(verify))
    if output:
        write_text(output, verification.to_json(result))
    sys.exit(0 if result["in_parity"] else 1)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
