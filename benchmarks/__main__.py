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

from benchmarks import runs
from benchmarks.contenders import CONTENDERS
from benchmarks.workloads import WORKLOADS
from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start


def define_flags(flag_values):
    """Defines the flags of this command; each is a keyword of `runs.run`."""
    flag_parsing.define_arguments(
        runs.run,
        flag_values,
        **{
            name: f"{name.capitalize()} to run. "
            + "; ".join(f"{k}: {v.description}" for k, v in table.items())
            for name, table in (
                ("workloads", WORKLOADS),
                ("contenders", CONTENDERS),
            )
        },
    )


def main(argv):
    """Runs the benchmark with the flags as keywords."""
    flag_parsing.require_flags_only(argv)
    report = runs.run(**flag_parsing.arguments(runs.run))
    failed = any("failed" in row for row in report["rows"])
    sys.exit(1 if failed or report["disagreements"] else 0)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
