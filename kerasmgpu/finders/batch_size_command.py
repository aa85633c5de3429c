"""Finds the largest batch that trains, and the smallest fast one.

    kerasmgpu find_batch_size my_module:build --num_replicas=2

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. The global batch is doubled until it
fails, exceeds the data, or the speed no longer rises; then it is bisected. A
process that runs out of memory, or is killed for it, is started again.
"""

import functools

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.finders import find_batch_size

define_flags = functools.partial(flag_parsing.define_arguments, find_batch_size)


def main(argv: list[str]) -> None:
    """Measures the model in `argv`, and prints the table."""
    build = flag_parsing.only_function(argv)
    find_batch_size(build, **flag_parsing.arguments(find_batch_size))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
