"""The command: where the CPU time of a step goes.

    python -m benchmarks.host_share --workloads=transformer,deep_narrow

Prints a table in Markdown. On logical CPU devices, with one thread in each of
TensorFlow's pools: then a kernel's time is the CPU time that it needs.
"""

import functools
import pathlib
import tempfile
from collections.abc import Sequence

from benchmarks.host_share import shares
from kerasmgpu.commands import child_processes, flag_parsing
from kerasmgpu.commands.command_line import start


def run(
    workloads: Sequence[str] = ("transformer", "deep_narrow"),
    contenders: Sequence[str] = ("kerasmgpu", "kerasmgpu_xla"),
    replica_counts: Sequence[int] = (1, 4, 8),
    steps: int = 30,
):
    """Measures each setting.

    Args:
        workloads: See benchmarks.
        contenders: See benchmarks.
        replica_counts: Sequence of integers, numbers of replicas.
        steps: Integer, steps of each of four epochs.

    Returns:
        List of the rows of the table.
    """
    rows = []
    for workload in workloads:
        for count in replica_counts:
            for contender in contenders:
                job = {
                    "workload": workload,
                    "contender": contender,
                    "replicas": count,
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


define_flags = functools.partial(flag_parsing.define_arguments, run)


def main(argv):
    """Prints the table of the flags' settings."""
    flag_parsing.require_flags_only(argv)
    print(shares.markdown(run(**flag_parsing.arguments(run))))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
