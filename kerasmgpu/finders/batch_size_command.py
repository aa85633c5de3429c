"""Finds the largest batch that trains, and the smallest fast one.

    kerasmgpu find_batch_size my_module:build --num_replicas=2

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. The global batch is doubled until it
fails, exceeds the data, or the speed no longer rises; then it is bisected. A
process that runs out of memory, or is killed for it, is started again.
"""

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.finders import find_batch_size


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(find_batch_size, flag_values)
    flags.adopt_module_key_flags(flag_parsing, flag_values)
    flags.DEFINE_string(
        "data",
        None,
        "MODULE:FUNCTION or FILE.py:FUNCTION that returns arrays (x, y), or "
        "batches as tf.data.Dataset or PyDataset.",
        flag_values=flag_values,
    )
    # Flags may follow the function's name.
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Measures the model in `argv`, and prints the table."""
    build = flag_parsing.only_function(argv)
    settings = flag_parsing.arguments(find_batch_size)
    find_batch_size(build, flags.FLAGS.data, **settings)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
