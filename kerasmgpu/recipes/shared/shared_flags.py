"""The flags that all recipes share, defined in one place.

A recipe has a function `define_flags(flag_values)` that calls `define` with its
own defaults and adds what only it needs. Every flag is a keyword of the
recipe's `run`; a keyword that is left out has the flag's default. TensorFlow
is not imported here, so that `--help` and a mistyped flag are answered at once.
"""

import sys
import types

from absl import flags

from kerasmgpu.commands import command_line, loading
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import presets, setting_checks

_CONTRADICTORY = (
    ("global_batch_size", "batch_size_per_replica"),
    ("steps", "epochs"),
    ("data_path", "dataset"),
    ("test_path", "held_out"),
)
"""Flags of which one run takes one."""


def define(
    flag_values,
    batch_size_per_replica,
    learning_rate,
    learning_rate_scaling,
    epochs,
    global_batch_size=None,
    steps=None,
    steps_per_epoch=None,
    all_reduce=True,
):
    """Defines the flags of devices, batch, learning rate, length and output.

    Args:
        flag_values: `absl.flags.FlagValues` to define them in.
        batch_size_per_replica: Default of that flag, in rows.
        learning_rate: Default of that flag, for one replica.
        learning_rate_scaling: Default of that flag, `"linear"`, `"sqrt"` or
            `"none"`; see `kerasmgpu.scale_learning_rate`.
        epochs: Default of that flag.
        global_batch_size: Default of that flag, in rows. Defaults to `None`.
        steps: Default of that flag. Defaults to `None`.
        steps_per_epoch: Default of that flag. Defaults to `None`.
        all_reduce: Whether there are flags of how gradients are summed.
            Defaults to `True`.
    """
    define_devices(flag_values, all_reduce)
    flags.DEFINE_integer(
        "batch_size_per_replica",
        batch_size_per_replica,
        "Rows of a step on each replica; the global batch is this times the "
        "number of replicas.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "global_batch_size",
        global_batch_size,
        "Rows of a step on all replicas together. Holds the global batch, "
        "whatever the number of replicas; the learning rate is not scaled then.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "learning_rate",
        learning_rate,
        "Learning rate for one replica.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "learning_rate_scaling",
        learning_rate_scaling,
        ["linear", "sqrt", "none"],
        "How the learning rate grows with the number of replicas.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "warmup_steps",
        0,
        "Steps over which the learning rate rises to its full value.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "epochs", epochs, "Passes over the data.", flag_values=flag_values
    )
    flags.DEFINE_integer(
        "steps",
        steps,
        "Optimizer updates in all; decides instead of --epochs when given.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "steps_per_epoch",
        steps_per_epoch,
        "Steps between reports, validations and checkpoints. Left out: one "
        "pass over the data.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "seed",
        0,
        "Seed of the data's split, the initial weights and the order of the "
        "rows.",
        flag_values=flag_values,
    )
    define_output(
        flag_values,
        longer="--epochs or --steps may be raised if the learning rate doesn't "
        "fall over the whole run. ",
    )


def define_devices(flag_values, all_reduce=True):
    """Defines what replicas run on; `define` includes it.

    Args:
        flag_values: `absl.flags.FlagValues` to define them in.
        all_reduce: Whether there are flags of how gradients are summed.
            Defaults to `True`.
    """
    flags.DEFINE_integer(
        "num_replicas",
        None,
        "Copies of the model, one per device. Left out: all visible GPUs, or "
        "one CPU.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "virtual_devices",
        None,
        "Logical devices to make of the CPU: how several replicas run on a "
        "machine without GPUs. They share its cores.",
        flag_values=flag_values,
    )
    if not all_reduce:
        return
    flags.DEFINE_enum(
        "all_reduce",
        "auto",
        [
            "auto",
            "nccl",
            "ring",
            "hierarchical_copy",
            "reduction_to_one_device",
        ],
        "How gradients are summed over the replicas; ring: of several workers.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_packs",
        1,
        "Packs that the gradients are summed in.",
        flag_values=flag_values,
    )


def define_preset(flag_values, define_flags, ending=".flags"):
    """Defines the flag of a recipe that comes with presets.

    Args:
        flag_values: `absl.flags.FlagValues` to define it in.
        define_flags: The recipe's function; its module's folder has them.
        ending: String, that of the presets' files.
    """
    names = ", ".join(presets.names(define_flags, ending))
    flags.DEFINE_string(
        "preset",
        None,
        f"Settings of an experiment: {names}. Flags that are given too stand "
        "in place of its own.",
        flag_values=flag_values,
    )


def define_output(flag_values, longer=""):
    """Defines where results go; `define` includes it.

    Args:
        flag_values: `absl.flags.FlagValues` to define them in.
        longer: Sentence on how a run that goes on may be longer, for the help.
            Defaults to none.
    """
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder for flags, history, model, learning curve and result. Left "
        "out: nothing is written.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "resume",
        False,
        "Go on from the last checkpoint in --output_dir, with the same flags. "
        f"{longer}Start there if there is none.",
        flag_values=flag_values,
    )


def define_data(
    flag_values, datasets=None, path_help="File, folder or zip with the data."
):
    """Defines where the data comes from.

    Args:
        flag_values: `absl.flags.FlagValues` to define them in.
        datasets: One line that names the data sets that can be fetched.
            Defaults to `None`: nothing is fetched, `--data_path` alone is
            defined.
        path_help: What `--data_path` takes.
    """
    flags.DEFINE_string("data_path", None, path_help, flag_values=flag_values)
    if datasets is None:
        return
    flags.DEFINE_string(
        "dataset",
        None,
        f"Data set to fetch by its name: {datasets}.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "data_dir",
        None,
        "Folder for fetched data and its parsed form. Left out: the user's "
        "cache folder.",
        flag_values=flag_values,
    )


def start(recipe):
    """Runs a recipe as a command; `--help` shows its flags and docstring.

    Args:
        recipe: Its module, with `define_flags` and `run`.
    """

    def define_flags(flag_values):
        recipe.define_flags(flag_values)
        command_line.show_help_of(recipe)
        for name in _own(recipe.define_flags):  # Those that all share, too.
            flag_values.register_key_flag_for_module(
                sys.argv[0], flag_values[name]
            )

    def main(argv):
        given = keywords(recipe.define_flags, argv)
        if cluster.is_first_worker():
            loading.announce()
        recipe.run(**given)

    command_line.start(main, define_flags)


def keywords(define_flags, argv):
    """The flags that were given, as keywords of `run`.

    Args:
        define_flags: The recipe's function of one `FlagValues`.
        argv: What abseil hands to `main`: the command and what is no flag.

    Raises:
        InputError: If an argument is no flag.
    """
    if len(argv) > 1:
        raise InputError(
            f"Expected flags only (--name=value). Received: {' '.join(argv[1:])}"
        )
    return {
        name: flags.FLAGS[name].value
        for name in _own(define_flags)
        if flags.FLAGS[name].present
    }


def settings(define_flags, keywords):
    """The settings of one run: keywords, and defaults for what is left out.

    Args:
        define_flags: The recipe's function of one `FlagValues`.
        keywords: Dictionary of the keywords that `run` was called with.

    Returns:
        A `types.SimpleNamespace` with one attribute per flag.

    Raises:
        InputError: If a keyword is no flag, or a value can't be used.
    """
    values = {name: flag.default for name, flag in _own(define_flags).items()}
    for name, value in keywords.items():
        if name not in values:
            raise InputError(
                f"Unknown setting. Received: {name}={value!r}; expected one "
                f"of {', '.join(values)}"
            )
    preset = keywords.get("preset")
    if preset is not None:
        values |= _preset(define_flags, preset, keywords)
    values |= keywords
    values.pop("preset", None)
    for one, other in _CONTRADICTORY:
        if None not in (keywords.get(one), keywords.get(other)):
            raise InputError(
                f"--{one} and --{other} say the same thing in two ways; give "
                f"one of them. Received: --{one}={keywords[one]} and "
                f"--{other}={keywords[other]}"
            )
    chosen = types.SimpleNamespace(**values)
    setting_checks.check(chosen)
    return chosen


def _preset(define_flags, name, given):
    """The settings of a preset, but for what is given otherwise."""
    flag_values = flags.FlagValues()
    define_flags(flag_values)
    path = presets.path(define_flags, name, ".flags")
    flag_values([name, f"--flagfile={path}"])
    of_preset = {
        name: flag_values[name].value
        for name in flag_values
        if flag_values[name].present
    }
    for pair in _CONTRADICTORY:
        if any(given.get(name) is not None for name in pair):
            for name in pair:
                of_preset.pop(name, None)
    return of_preset


def as_flags(chosen):
    """The settings as lines of a flag file, `--name=value`, by name.

    A setting that is `None` has no line.
    """
    lines = {}
    for name, value in vars(chosen).items():
        if isinstance(value, bool):
            lines[name] = f"--{name}={str(value).lower()}"
        elif isinstance(value, (list, tuple)):
            lines[name] = f"--{name}={','.join(map(str, value))}"
        elif value is not None:
            lines[name] = f"--{name}={value}"
    kept = deciding(lines.values())
    return {name: line for name, line in lines.items() if line in kept}


def deciding(lines):
    """The lines of a flag file, without defaults that another flag replaces.

    Args:
        lines: Iterable of strings, `--name=value`.
    """
    names = {line[2:].partition("=")[0] for line in lines}
    replaced = {other for one, other in _CONTRADICTORY if one in names}
    return [
        line for line in lines if line[2:].partition("=")[0] not in replaced
    ]


def _own(define_flags):
    """The recipe's flags by name, in a registry of their own."""
    flag_values = flags.FlagValues()
    define_flags(flag_values)
    return {name: flag_values[name] for name in flag_values}
