"""Compiles a model's steps with XLA ahead of a job, and keeps the programs.

    kerasmgpu compile my_module:build --replicas=4 --global_batch_size=256 \
        --output=compiled

`build` is a function that returns a Keras model, compiled with
`jit_compile=True`. Its data come from `--data=my_module:function`, from a
function `data` of the same module, or from `build`, if it returns `(model,
data)`. Each step runs once, in a process of its own: the first batch trains a
model that is then thrown away. A job that is started with
KERASMGPU_XLA_CACHE=compiled finds its programs there, and refuses the folder if
they are for another version of TensorFlow or another model of the devices. All
GPUs must be of the model that compiles; without any, logical CPU devices do.
"""

import json

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.compile.filling import STEPS, fill
from kerasmgpu.strategy_settings import SHARDS


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(
        fill,
        flag_values,
        steps=f"Steps to compile, of {', '.join(STEPS)}.",
        shard=f"What the replicas divide: {', '.join(SHARDS[1:])}.",
    )
    flag_parsing.define_json(flag_values)


def main(argv: list[str]) -> None:
    """Compiles the steps of the model in `argv`; prints a table, or JSON."""
    build, as_json = flag_parsing.only_function(argv), flags.FLAGS.json
    report = fill(build, **flag_parsing.arguments(fill), show=not as_json)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
