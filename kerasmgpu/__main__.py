"""The command line, `kerasmgpu COMMAND` or `python -m kerasmgpu COMMAND`."""

import runpy
import sys

import kerasmgpu
from kerasmgpu.commands import endings, search_path

COMMANDS = {
    "autoencoder": (
        "kerasmgpu.recipes.autoencoder",
        "train a collaborative-filtering autoencoder on movie ratings",
    ),
    "polynomial": (
        "kerasmgpu.recipes.polynomial",
        "fit a polynomial through make_parallel on several devices",
    ),
    "convnet": (
        "kerasmgpu.recipes.convnet",
        "train any Keras model from a YAML file with one n_gpus",
    ),
    "alexnet": (
        "kerasmgpu.recipes.alexnet",
        "classify images: large batches, warm-up, is the input the limit",
    ),
    "deepconn": (
        "kerasmgpu.recipes.deepconn",
        "place a two-tower model's layers on one or two devices, and compare",
    ),
    "check": (
        "kerasmgpu.check",
        "run everything of a long run once: fit, evaluate, save, load, resume",
    ),
    "checkpoint": (
        "kerasmgpu.commands.checkpoint_command",
        "show, verify and convert checkpoints; to Keras's files and back",
    ),
    "compile": (
        "kerasmgpu.compile",
        "compile a model's steps with XLA ahead of a job, into a folder",
    ),
    "doctor": (
        "kerasmgpu.doctor",
        "examine a machine: versions, GPUs, links, and what works",
    ),
    "evidence": (
        "kerasmgpu.commands.evidence_command",
        "make a table of steps that callbacks.Audit compared with one device",
    ),
    "find_batch_size": (
        "kerasmgpu.finders.batch_size_command",
        "find the largest batch that fits, and the smallest fast one",
    ),
    "find_learning_rate": (
        "kerasmgpu.finders.learning_rate_command",
        "suggest a learning rate by a range test",
    ),
    "flops": (
        "kerasmgpu.commands.flops_command",
        "count the FLOPs of a training step by layer, and its shortest time",
    ),
    "launch": (
        "kerasmgpu.launch",
        "run a program in several workers, here and on other machines",
    ),
    "memory": (
        "kerasmgpu.memory",
        "predict the memory of a step per replica, and what fits a GPU",
    ),
    "plan": (
        "kerasmgpu.plan",
        "predict the speed-up of more GPUs, and the bottleneck",
    ),
    "prove": (
        "kerasmgpu.prove",
        "say without a GPU what several will do with your model",
    ),
    "report": (
        "kerasmgpu.report",
        "write a page about runs: curves, speed, time, devices",
    ),
    "scaling_report": (
        "kerasmgpu.commands.scaling_report",
        "run a recipe at several replica counts: time, speed-up, efficiency",
    ),
    "verify": (
        "kerasmgpu.verify",
        "compare your own model on N replicas with one device",
    ),
}
"""Maps a command to its module, which `python -m` also runs, and its help."""

_MOVED = {"image_batch_study": "alexnet --preset=batch_study"}
"""Maps former commands to today's."""


def main() -> None:
    """Runs the command in `sys.argv`, or lists all commands.

    Exits with status 2 if there is no such command.
    """
    search_path.leave_to_the_user()
    with endings.without_traceback():
        _run()


def _run() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "--helpfull", "help"):
        print(usage())
    elif name == "--version":
        print(f"kerasmgpu {kerasmgpu.__version__}")
    elif name in COMMANDS:
        module, _ = COMMANDS[name]
        sys.argv[:2] = [f"kerasmgpu {name}"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif name in _MOVED:
        print(
            f"error: {name} is a preset now: kerasmgpu {_MOVED[name]}",
            file=sys.stderr,
        )
        sys.exit(2)
    else:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=3)
        expected = f"expected {' or '.join(near)}; " if near else ""
        print(
            f"error: unknown command. Received: {name}; {expected}kerasmgpu "
            "--help lists the commands",
            file=sys.stderr,
        )
        sys.exit(2)


def usage() -> str:
    """Returns the help text, which lists the commands."""
    import textwrap  # Ours may be imported when the search path is ready only.

    width = max(map(len, COMMANDS))
    lines = [
        f"kerasmgpu {kerasmgpu.__version__}",
        "",
        "usage: kerasmgpu COMMAND [flags]",
        "       python -m kerasmgpu COMMAND [flags]",
        "",
    ]
    for name, (_, purpose) in COMMANDS.items():
        lines += textwrap.wrap(
            purpose,
            80,
            initial_indent=f"  {name:{width}}  ",
            subsequent_indent=" " * (width + 4),
        )
    return "\n".join([*lines, "", "Each command takes --help."])


if __name__ == "__main__":
    main()
