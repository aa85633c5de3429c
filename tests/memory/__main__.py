"""Compares predicted with measured memory, and prints a table in Markdown.

    python -m tests.memory
    python -m tests.memory --select=dense,gpt

`predicted` is what `kerasmgpu.memory` predicts for a step on one replica beyond
variables and batch; `outputs` what kernels' outputs took when it ran, `all` with
the memory that kernels use inside. That differs between devices: convolutions on
CPUs copy patches of images, those on GPUs have workspaces of their own. Some
kernels make parts of their results in it, too (`Einsum`), which are predicted. So
a prediction counts as near if it is within 10 % of one of the two. A C compiler
is needed.
"""

import sys

from absl import app, flags

from tests.memory import measuring_processes

FLAGS = flags.FLAGS
flags.DEFINE_list("select", [], "Parts of names of models; or all.")


def main(argv):
    del argv
    print(
        "| model | rows | predicted MiB | outputs | all | to outputs | to all "
        "| near | state |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    far = 0
    for record in measuring_processes.records(FLAGS.select):
        print(measuring_processes.row(record), flush=True)
        far += not measuring_processes.is_near(record)
    print(f"{far} of them are more than 10 % off", file=sys.stderr)
    return 0


if __name__ == "__main__":
    app.run(main)
