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
from kerasmgpu.hardware.data_sheets import DEVICES
from kerasmgpu.memory import memory, memory_report
from kerasmgpu.strategy_settings import SHARDS


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(
        memory,
        flag_values,
        shard=f"What is divided by the replicas, of {', '.join(SHARDS)}.",
        shard_over="Replicas over which a variable is divided; all by default.",
        offload="What is in host memory where it is divided: none, or optimizer.",
        recompute="What is computed again: none, elementwise, auto or a size.",
        replicas_per_worker="Replicas of each process of a job; all by default.",
        device_type="GPU, or CPU, whose memory a process's replicas share.",
        device_memory=f"Memory of a device, as 24GiB, or one of {', '.join(DEVICES)}.",
    )
    flag_parsing.define_json(flag_values)


def main(argv: list[str]) -> None:
    """Predicts the memory of the model in `argv`; prints a table, or JSON."""
    build, as_json = flag_parsing.only_function(argv), flags.FLAGS.json
    settings = flag_parsing.arguments(memory)
    report = memory(build, **settings, show=not as_json)
    if as_json:
        print(memory_report.to_json(report))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
