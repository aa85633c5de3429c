"""The command: where the CPU time of a step goes.

    python -m benchmarks.host_share --workloads=transformer,deep_narrow

Prints a table in Markdown. On logical CPU devices, with one thread in each of
TensorFlow's pools: then a kernel's time is the CPU time that it needs.
"""

import pathlib
import tempfile

from absl import flags

from benchmarks.host_share import shares
from kerasmgpu.commands import child_processes
from kerasmgpu.commands.command_line import start


def define_flags(flag_values):
    """Defines the flags of this command."""
    for name, values, description in (
        ("workloads", ["transformer", "deep_narrow"], "See benchmarks."),
        ("contenders", ["kerasmgpu", "kerasmgpu_xla"], "See benchmarks."),
        ("replica_counts", ["1", "4", "8"], "Numbers of replicas."),
    ):
        flags.DEFINE_list(name, values, description, flag_values=flag_values)
    flags.DEFINE_integer(
        "steps", 30, "Steps of each of four epochs.", flag_values=flag_values
    )


def run(workloads, contenders, replica_counts, steps):
    """Measures each setting; returns the rows of the table."""
    rows = []
    for workload in workloads:
        for count in replica_counts:
            for contender in contenders:
                job = {
                    "workload": workload,
                    "contender": contender,
                    "replicas": int(count),
                    "steps": steps,
                }
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(
                        child_processes.run_job(
                            "benchmarks.host_share.child",
                            job,
                            pathlib.Path(folder),
                            900.0,
                            {"CUDA_VISIBLE_DEVICES": "-1"},
                        )
                    )
    return rows


def main(argv):
    """Prints the table of the flags' settings."""
    values = flags.FLAGS
    rows = run(
        values.workloads,
        values.contenders,
        values.replica_counts,
        values.steps,
    )
    print(shares.markdown(rows))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
