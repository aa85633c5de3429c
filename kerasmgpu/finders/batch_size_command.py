"""Finds the largest batch that trains, and the smallest fast one.

    kerasmgpu find_batch_size my_module:build --num_replicas=2

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`. The global batch is doubled until it
fails, exceeds the data, or the speed no longer rises; processes that run out
of memory are started again.
"""

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.errors import InputError
from kerasmgpu.finders.batch_size import find_batch_size
from kerasmgpu.replica_arithmetic import SHARDS

_INTEGERS = {
    "num_replicas": "Number of replicas. Default: all visible GPUs.",
    "virtual_devices": "Number of logical CPU devices to use as replicas.",
    "micro_batches": "Parts in which a replica works through its rows.",
    "low": "Global batch to begin with; larger ones are its multiples.",
    "high": "Largest global batch. Default: the rows of the data.",
}
_NUMBERS = {
    "precision": "Share by which the smallest that fails may be larger than "
    "the largest found.",
    "target_efficiency": "Share of the best examples/s to recommend.",
    "seconds": "How long to measure each size, in seconds.",
    "timeout_seconds": "Limit for one size, with starting and tracing.",
}
_TEXTS = {
    "data": "MODULE:FUNCTION or FILE.py:FUNCTION that returns arrays (x, y), "
    "or batches as tf.data.Dataset or PyDataset.",
    "plot": "PNG file of examples/s over the global batch. Default: none.",
}


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    defaults = flag_parsing.defaults(find_batch_size)
    for name, text in _INTEGERS.items():
        flags.DEFINE_integer(
            name, defaults[name], text, lower_bound=1, flag_values=flag_values
        )
    for name, text in _NUMBERS.items():
        flags.DEFINE_float(name, defaults[name], text, flag_values=flag_values)
    for name, text in _TEXTS.items():
        flags.DEFINE_string(name, defaults[name], text, flag_values=flag_values)
    flags.DEFINE_enum(
        "shard",
        None,
        SHARDS,
        "What is divided by the replicas.",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "stop_when_flat",
        defaults["stop_when_flat"],
        "Stops where the speed no longer rises.",
        flag_values=flag_values,
    )
    # Flags may follow the function's name.
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Measures the model in `argv`, and prints the table."""
    if len(argv) != 2:
        raise InputError(
            "give one function that returns your compiled model, such as "
            f"my_module:build. Received: {' '.join(argv[1:]) or 'none'}"
        )
    names = [*_INTEGERS, *_NUMBERS, *_TEXTS, "shard", "stop_when_flat"]
    find_batch_size(
        argv[1], **{name: flags.FLAGS[name].value for name in names}
    )


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
