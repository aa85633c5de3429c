"""The command: benchmarks against plain Keras, stock, JAX and PyTorch.

    python -m benchmarks --workloads=deep_narrow,autoencoder \
        --replica_counts=1,2,4 --output_dir=benchmark

Contenders take turns, each in a separate process: same model, same weights,
same batches. `--output_dir` gets

    benchmark.json     all runs, their medians, the machine and the versions
    benchmark.md       the same tables, for a README
    benchmark.png      examples/s and host CPU over replicas (matplotlib)
    runs/              each run's job, log and result

If a contender fails, its row shows the error, and the others continue. This
process does not import TensorFlow, so it takes no device memory. The exit
status is 1 if a run failed or contenders did not train the same model.
"""

import sys

from absl import flags

from benchmarks import runs
from benchmarks.contenders import BY_DEFAULT, CONTENDERS
from benchmarks.workloads import WORKLOADS
from kerasmgpu.commands.command_line import start
from kerasmgpu.commands.flag_parsing import counts_of_flag
from kerasmgpu.errors import InputError


def define_flags(flag_values):
    """Defines the flags of this command; each is a keyword of `runs.run`."""
    flags.DEFINE_list(
        "workloads",
        list(WORKLOADS),
        "; ".join(f"{name}: {w.description}" for name, w in WORKLOADS.items()),
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "contenders",
        list(BY_DEFAULT),
        "; ".join(f"{name}: {c.description}" for name, c in CONTENDERS.items()),
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "replica_counts",
        ["1", "2", "4", "8"],
        "Numbers of replicas.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "rounds",
        3,
        "How often every contender has a turn.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "steps",
        30,
        "Steps of each of a run's epochs: one warms up, three are measured.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "global_batch_size",
        None,
        "Rows of a step over all replicas. Default: each workload's own.",
        lower_bound=1,
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "virtual_devices",
        False,
        "Logical CPU devices, even where there are GPUs.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "timeout_seconds",
        900,
        "How long each run may take, in seconds.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "output_dir",
        "benchmark",
        "Folder for the report and the runs; new or empty.",
        flag_values=flag_values,
    )


def main(argv):
    """Runs the benchmark with the flags as keywords."""
    if len(argv) > 1:
        raise InputError(
            "only flags are expected, such as --workloads=deep_narrow. "
            f"Received: {' '.join(argv[1:])}"
        )
    values = flags.FLAGS
    report = runs.run(
        workloads=values.workloads,
        contenders=values.contenders,
        replica_counts=counts_of_flag(values.replica_counts),
        rounds=values.rounds,
        steps=values.steps,
        global_batch_size=values.global_batch_size,
        virtual_devices=values.virtual_devices,
        timeout_seconds=values.timeout_seconds,
        output_dir=values.output_dir,
    )
    failed = any("failed" in row for row in report["rows"])
    sys.exit(1 if failed or report["disagreements"] else 0)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
