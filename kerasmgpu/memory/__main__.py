"""Predicts the memory of a training step on each replica, without a GPU.

    python -m kerasmgpu.memory my_module:build --global_batch_size=256 \
        --replicas=1,2,4,8 --device_memory=24GiB

`build` is a function that returns a compiled Keras model. Its data come from
`--data=my_module:function`, from a function `data` of the same module, or from
`build`, if it returns `(model, data)`; only the first batch is read, and
nothing is trained. With `--device_memory` it says which settings fit.
"""

from absl import flags

from kerasmgpu.commands import flag_parsing, tracing_process
from kerasmgpu.commands.command_line import start
from kerasmgpu.hardware.data_sheets import DEVICES
from kerasmgpu.memory import memory, memory_prediction, memory_report
from kerasmgpu.memory.state_bytes import SHARDS

_DEFAULTS = flag_parsing.defaults(memory)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""

    flags.DEFINE_list(
        "replicas",
        [str(count) for count in _DEFAULTS["replicas"]],
        "Numbers of replicas.",
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
    flags.DEFINE_string(
        "device_memory",
        None,
        f"Memory of a device, as 24GiB, or one of {', '.join(DEVICES)}.",
        flag_values=flag_values,
    )
    tracing_process.define_flags(flag_values, _DEFAULTS["timeout_seconds"])


def main(argv: list[str]) -> None:
    """Predicts for the model in `argv`, and prints the table."""
    build = tracing_process.function_in(argv)
    values = flags.FLAGS
    micro_batches = values.micro_batches
    if micro_batches is not None:
        micro_batches = flag_parsing.counts_of_flag(micro_batches)
    report = memory_prediction.run(
        build,
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
