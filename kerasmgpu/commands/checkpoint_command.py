"""Shows, verifies and converts checkpoints of `kerasmgpu.callbacks.Checkpoint`.

    kerasmgpu checkpoint show runs/1/checkpoints
    kerasmgpu checkpoint verify runs/1/checkpoints
    kerasmgpu checkpoint convert CHECKPOINT model.weights.h5
    kerasmgpu checkpoint convert CHECKPOINT model.keras --like=other.keras
    kerasmgpu checkpoint convert model.weights.h5 NEW --like=CHECKPOINT

CHECKPOINT is a file, a folder of a sharded one, or the directory of a run, whose
newest one is meant. `convert` goes by the suffix of the new name: `.npz` is one
file, `.weights.h5` and `.keras` are Keras's, and none is a folder. It holds
one variable at a time and needs no model, but another `.keras` file of the same
model for its configuration. `verify` exits with status 1 if one is damaged.
"""

import sys

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import announce_loading, start
from kerasmgpu.errors import InputError

_ARGUMENTS = {"show": 1, "verify": 1, "convert": 2}


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string(
        "like",
        None,
        "convert: file with what the source lacks: another .keras file of the "
        "same model, or the checkpoint that Keras's weights are put into.",
        flag_values=flag_values,
    )
    flag_parsing.define_json(flag_values)
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Runs `show`, `verify` or `convert`."""
    name, *paths = argv[1:] or [""]
    if _ARGUMENTS.get(name) != len(paths):
        raise InputError(
            "show CHECKPOINT, verify CHECKPOINT or convert SOURCE TARGET is "
            f"expected. Received: {' '.join(argv[1:]) or 'none'}"
        )
    announce_loading()
    from kerasmgpu.commands import checkpoint_reports

    if name == "show":
        checkpoint_reports.show(paths[0], as_json=flags.FLAGS.json)
    elif name == "convert":
        source, target = paths
        checkpoint_reports.convert(source, target, flags.FLAGS.like)
    elif not checkpoint_reports.verify(paths[0]):
        sys.exit(1)


if __name__ == "__main__":
    start(main, define_flags)
