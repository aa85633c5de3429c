"""Runs everything of a long run once, before it is started.

    kerasmgpu check my_module:build --virtual_devices=2

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. The model trains two steps, evaluates,
predicts, is saved, loaded in another process, and resumed from a checkpoint, on
one device and on all GPUs (without any: on two logical CPU devices). The table
says how long each stage took, and which failed, with the line of your code. The
exit status is 0 only if none has failed. As a job of two workers:

    kerasmgpu launch --num_workers=2 -m kerasmgpu check my_module:build
"""

import json
import sys

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.check import check
from kerasmgpu.commands import flag_parsing, reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.job import cluster


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(check, flag_values)
    flag_parsing.define_output(flag_values)


def main(argv: list[str]) -> None:
    """Checks the model in `argv`; exits with status 1 if a stage failed."""
    build, output = flag_parsing.only_function(argv), flags.FLAGS.output
    reports.require_file_in_folder(output)
    result = check(build, **flag_parsing.arguments(check))
    if output and cluster.is_first_worker():
        write_text(output, json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["is_well"] else 1)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
