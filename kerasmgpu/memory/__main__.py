"""Predicts the memory of a training step on each replica, without a GPU.

    python -m kerasmgpu.memory my_module:build --global_batch_size=256 \
        --replicas=1,2,4,8 --device_memory=24GiB

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`; only the first batch is read, and
nothing is trained. With `--device_memory` it says which settings fit.
"""

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.errors import InputError
from kerasmgpu.memory import memory, memory_prediction, memory_report
from kerasmgpu.memory.device_memory import DEVICES
from kerasmgpu.memory.state_bytes import SHARDS

_DEFAULTS = flag_parsing.defaults(memory)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""

    def text(name: str, help_text: str) -> None:
        flags.DEFINE_string(name, None, help_text, flag_values=flag_values)

    flags.DEFINE_list(
        "replicas",
        [str(count) for count in _DEFAULTS["replicas"]],
        "Numbers of replicas.",
        flag_values=flag_values,
    )
    text(
        "data",
        "MODULE:FUNCTION or FILE.py:FUNCTION that returns arrays (x, y), or "
        "batches as tf.data.Dataset or PyDataset.",
    )
    flags.DEFINE_integer(
        "global_batch_size",
        None,
        "Rows of all replicas. Default: those of the first batch; 32 of arrays.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "shard",
        list(_DEFAULTS["shard"]),
        f"What is divided by the replicas, of {', '.join(SHARDS)}.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "micro_batches",
        None,
        "Parts in which a replica runs its rows. Default: the smallest power "
        "of two that fits, or 1.",
        flag_values=flag_values,
    )
    text(
        "device_memory",
        f"Memory of a device, as 24GiB, or one of {', '.join(DEVICES)}.",
    )
    flags.DEFINE_boolean(
        "json",
        False,
        "Prints the report as JSON instead of the table.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "timeout_seconds",
        _DEFAULTS["timeout_seconds"],
        "How long building and tracing the model may take, in seconds.",
        flag_values=flag_values,
    )
    # Flags may follow the function's name.
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Predicts for the model in `argv`, and prints the table."""
    if len(argv) != 2:
        raise InputError(
            "give one function that returns your compiled model, such as "
            f"my_module:build. Received: {' '.join(argv[1:]) or 'none'}"
        )
    values = flags.FLAGS
    micro_batches = values.micro_batches
    if micro_batches is not None:
        micro_batches = flag_parsing.counts_of_flag(micro_batches)
    report = memory_prediction.run(
        argv[1],
        values.data,
        flag_parsing.counts_of_flag(values.replicas),
        global_batch_size=values.global_batch_size,
        shard=values.shard,
        micro_batches=micro_batches,
        device_memory=values.device_memory,
        timeout_seconds=values.timeout_seconds,
        show=not values.json,
    )
    if values.json:
        print(memory_report.to_json(report))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
