"""The flags that all recipes share, and the settings of a run.

Every flag of a recipe is a keyword of its `run`; a keyword that is left out has
the flag's default. TensorFlow is not imported here, so that `--help` and a
mistyped flag are answered at once.
"""

import difflib
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from absl import flags

from kerasmgpu.commands import command_line, flag_parsing
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster
from kerasmgpu.recipes.shared import results_place
from kerasmgpu.recipes.shared.flag_definitions import (
    Definitions,
    checked,
    integers,
)
from kerasmgpu.stores.places import checked_place, place
from kerasmgpu.stores.store_path import StorePath

DefineFlags = Callable[[flags.FlagValues], None]
Settings = dict[str, Any]

_CONTRADICTORY = (
    ("global_batch_size", "batch_size_per_replica"),
    ("steps", "epochs"),
    ("data_path", "dataset"),
    ("test_path", "held_out"),
)
"""Flags of which a run takes one."""

_ALL_REDUCES = "auto nccl ring hierarchical_copy reduction_to_one_device"
_MOST_SEEDS = 2**32 - 1  # NumPy's and Keras's seeds have no more bits.


def define(
    flag_values: flags.FlagValues,
    batch_size_per_replica: int | None,
    learning_rate: float,
    learning_rate_scaling: str,
    epochs: int | None,
    global_batch_size: int | None = None,
    all_reduce: bool = True,
) -> None:
    """Defines the flags of devices, batch, learning rate, length and output.

    The arguments are defaults; `all_reduce` says whether to define the flags of
    the all-reduce of gradients, too.
    """
    define_devices(flag_values, all_reduce)
    flag = Definitions(flag_values)
    # fmt: off
    flag.integer("batch_size_per_replica", batch_size_per_replica,
        "Rows of a step on each replica; the global batch is this times the "
        "number of replicas.")
    flag.integer("global_batch_size", global_batch_size,
        "Rows of a step on all replicas together. Holds the global batch, "
        "whatever the number of replicas; the learning rate is not scaled "
        "then.")
    flag.number("learning_rate", learning_rate,
        "Learning rate for one replica.", least=0, excludes_bounds=True)
    flag.choice("learning_rate_scaling", learning_rate_scaling,
        ["linear", "sqrt", "none"],
        "How the learning rate grows with the number of replicas.")
    flag.integer("warmup_steps", 0,
        "Steps over which the learning rate rises to its full value.", least=0)
    flag.integer("epochs", epochs, "Passes over the data.")
    flag.integer("steps", None,
        "Optimizer updates in all; decides instead of --epochs when given.")
    flag.integer("steps_per_epoch", None,
        "Steps between reports, validations and checkpoints. Left out: one "
        "pass over the data.")
    flag.integer("seed", 0,
        "Seed of the data's split, initial weights and the order of the rows.",
        least=0, most=_MOST_SEEDS)
    define_output(flag_values, longer=
        "--epochs or --steps may be raised if the learning rate doesn't "
        "fall over the whole run. ")
    # fmt: on


def define_devices(
    flag_values: flags.FlagValues, all_reduce: bool = True
) -> None:
    """Defines what replicas run on; `define` includes it."""
    flag = Definitions(flag_values)
    # fmt: off
    flag.integer("num_replicas", None,
        "Copies of the model, one per device. Left out: all visible GPUs, or "
        "one CPU.", most=65536)
    flag.integer("virtual_devices", None,
        "Logical devices to make of the CPU: how several replicas run on a "
        "machine without GPUs. They share its cores.", most=256)
    flag.settings()
    if all_reduce:
        flag.choice("all_reduce", "auto", _ALL_REDUCES.split(),
            "How gradients are summed over the replicas; ring: of several "
            "workers.")
        flag.integer("num_packs", 1,
            "Packs that the gradients are summed in.", most=10**6)
    # fmt: on


WATCHING = ("tensorboard", "profile", "hang_seconds", "check_finite")
"""Flags that say what is seen of a run; results don't depend on them."""


def define_output(flag_values: flags.FlagValues, longer: str) -> None:
    """Defines where results go; `define` includes it.

    `longer` is the sentence of the help on extending a resumed run.
    """
    flag = Definitions(flag_values)
    # fmt: off
    flag.string("output_dir", None,
        "Folder for flags, history, model, learning curve and result, or its "
        "URL, such as s3://bucket/runs/1. Left out: nothing is written.")
    flag.switch("resume", False,
        "Go on from the last checkpoint in --output_dir, with the same flags. "
        f"{longer}Start there if there is none.")
    flag.switch("tensorboard", False,
        "Write speed, step times, learning rate, memory and norms of gradients "
        "and updates to the folder tensorboard of --output_dir.")
    flag.strings("profile", None,
        "First and last step to profile, such as 10,15, into that folder, too.")
    flag.number("hang_seconds", None,
        "Seconds without progress after which the log says where each worker "
        "is. Left out: 20 times the median step, and at least 30.",
        least=0, excludes_bounds=True)
    flag.switch("check_finite", False,
        "End at the first NaN or infinity, and name its step, replica and "
        "layer.")
    # fmt: on


def define_data(
    flag_values: flags.FlagValues,
    datasets: Iterable[str] = (),
    path_help: str = "File, folder or zip with the data.",
) -> None:
    """Defines where data come from; `datasets` can be fetched by name."""
    flag = Definitions(flag_values)
    # fmt: off
    flag.string("data_path", None, path_help)
    if datasets:
        names = ", ".join(datasets)
        flag.string("dataset", None, f"Data set to fetch by its name: {names}.")
        flag.string("data_dir", None,
            "Folder for fetched data and its parsed form. Left out: the "
            "user's cache folder.")
    # fmt: on


def define_held_out(
    flag_values: flags.FlagValues, default: float, text: str
) -> None:
    Definitions(flag_values).number(
        "held_out", default, text, least=0, most=1, excludes_bounds=True
    )


def define_preset(
    flag_values: flags.FlagValues,
    define_flags: DefineFlags,
    ending: str = ".flags",
) -> None:
    """Defines the flag that names a file of the recipe's `presets/` folder."""
    names = ", ".join(
        f"{name} (with --data_path)" if _needed_data(path) else name
        for name, path in sorted(_presets(define_flags, ending).items())
    )
    Definitions(flag_values).string(
        "preset",
        None,
        f"Settings of an experiment: {names}. Flags that are given too stand "
        "in place of its own.",
    )


def _presets(define_flags: DefineFlags, ending: str) -> dict[str, pathlib.Path]:
    """Paths of a recipe's presets, by name."""
    module = sys.modules[define_flags.__module__]
    folder = pathlib.Path(module.__file__ or "").parent / "presets"
    return {path.stem: path for path in folder.glob(f"*{ending}")}


def preset_path(
    define_flags: DefineFlags, name: str, ending: str = ".flags"
) -> pathlib.Path:
    """Path of a preset; raises `InputError` for an unknown name."""
    known = _presets(define_flags, ending)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f" (is {near[0]} meant?)" if near else ""
        raise InputError(
            f"--preset must be one of {', '.join(sorted(known))}. Received: "
            f"{name}{meant}"
        )
    return known[name]


_NEEDED_DATA = re.compile(r"^# Needs --data_path: (.*)\.$", re.MULTILINE)


def _needed_data(preset: pathlib.Path) -> str | None:
    """What `--data_path` must be with a preset; `None` if it needs none."""
    found = _NEEDED_DATA.search(preset.read_text("utf-8"))
    return found and found[1]


def start(recipe: ModuleType) -> None:
    """Runs a recipe's module as a command; `--help` shows its docstring."""

    def define_flags(flag_values: flags.FlagValues) -> None:
        recipe.define_flags(flag_values)
        command_line.show_help_of(recipe)
        for name in _flags_of(recipe.define_flags):  # Shared ones, too.
            flag_values.register_key_flag_for_module(
                sys.argv[0], flag_values[name]
            )

    def main(argv: list[str]) -> None:
        flag_parsing.require_flags_only(argv)
        if cluster.is_first_worker():
            command_line.announce_loading()
        recipe.run(**_given(flags.FLAGS, _flags_of(recipe.define_flags)))
        if cluster.is_first_worker():
            for line in results_place.lines(flags.FLAGS["output_dir"].value):
                print(line, flush=True)

    command_line.start(main, define_flags)


def settings(
    define_flags: DefineFlags, keywords: Mapping[str, Any]
) -> SimpleNamespace:
    """The settings of a run, an attribute per flag.

    In order of precedence: keywords, the preset's flags, the flags' defaults.
    """
    known = _flags_of(define_flags)
    for name, value in keywords.items():
        if name not in known:
            raise InputError(
                f"Unknown setting. Received: {name}={value!r}; expected one "
                f"of {', '.join(known)}"
            )
    given = {name: checked(known[name], v) for name, v in keywords.items()}
    values = {name: flag.default for name, flag in known.items()}
    if given.get("preset") is not None:
        values |= _of_preset(define_flags, given)
    values |= given
    values.pop("preset", None)
    for one, other in _CONTRADICTORY:
        if None not in (given.get(one), given.get(other)):
            raise InputError(
                f"--{one} and --{other} say the same thing in two ways; give "
                f"one of them. Received: --{one}={given[one]} and "
                f"--{other}={given[other]}"
            )
    for name in ("data_path", "test_path"):
        path = values.get(name)
        if path and not checked_place(path, f"--{name}").exists():
            raise InputError(
                f"--{name} must be a file or folder that exists. Received: {path}"
            )
    _check_folder(values)
    values["profile"] = _pair(values["profile"])
    return SimpleNamespace(**values)


def _check_folder(values: Settings) -> None:
    """Refuses flags that need the folder of a run without one."""
    for name in ("resume", "tensorboard", "profile"):
        if values[name] and not values["output_dir"]:
            raise InputError(
                f"--{name} needs the folder of the run. Received: no "
                "--output_dir"
            )
    folder = values["output_dir"]
    if folder and isinstance(place(folder), StorePath):
        for name in ("tensorboard", "profile"):
            if values[name]:
                raise InputError(
                    f"--{name} needs a local --output_dir: its files are "
                    f"appended to. Received: --output_dir={folder}"
                )


def _pair(texts: list[str] | None) -> tuple[int, int] | None:
    """The first and the last step of `--profile`."""
    if not texts:
        return None
    steps = integers(texts)
    if len(steps) != 2 or not 1 <= steps[0] <= steps[1]:
        raise InputError(
            "--profile must be the first and the last step, such as "
            f"10,15. Received: {','.join(map(str, texts))}"
        )
    return steps[0], steps[1]


def _of_preset(define_flags: DefineFlags, given: Settings) -> Settings:
    """The settings of a preset, without those that `given` replaces."""
    flag_values = flags.FlagValues()
    define_flags(flag_values)
    path = preset_path(define_flags, given["preset"])
    needed = _needed_data(path)
    if needed and not given.get("data_path") and not given.get("dataset"):
        raise InputError(
            f"--preset={given['preset']} needs --data_path: {needed}. "
            "Received: no --data_path"
        )
    flag_values(["preset", f"--flagfile={path}"])
    of_preset = _given(flag_values, flag_values)
    for pair in _CONTRADICTORY:
        if any(given.get(name) is not None for name in pair):
            for name in pair:
                of_preset.pop(name, None)
    return of_preset


def _flags_of(define_flags: DefineFlags) -> dict[str, flags.Flag]:
    flag_values = flags.FlagValues()
    define_flags(flag_values)
    return {name: flag_values[name] for name in flag_values}


def _given(flag_values: flags.FlagValues, names: Iterable[str]) -> Settings:
    """Values of the flags that were given, by name."""
    present = (name for name in names if flag_values[name].present)
    return {name: flag_values[name].value for name in present}


def as_flags(chosen: SimpleNamespace) -> dict[str, str]:
    """The settings that aren't `None` as lines `--name=value`, by name."""
    lines = {}
    for name, value in vars(chosen).items():
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        if value is not None:
            lines[name] = f"--{name}={value}"
    return deciding(lines)


def deciding(lines: Mapping[str, str]) -> dict[str, str]:
    """Drops lines of flags that another line overrides."""
    replaced = {other for one, other in _CONTRADICTORY if one in lines}
    return {name: lines[name] for name in lines if name not in replaced}
