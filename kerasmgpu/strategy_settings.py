"""`Settings`: a strategy's settings, their checks, and recipes' flags for them.

Public functions take settings as keywords; `MirroredStrategy` documents them.
For a new one, add a field here, and a keyword to the strategies: `run.json`, and
the recipes' flags, have it then. A command that takes it has a keyword for it.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kerasmgpu.division import Shard
from kerasmgpu.errors import (
    InputError,
    checked_choice,
    checked_integer,
    checked_path,
)
from kerasmgpu.hardware import device_memory
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES

XlaCache: TypeAlias = str | os.PathLike[str] | bool | None
"""A folder to keep programs in; `False` for none; `None` for the default."""

Check: TypeAlias = Callable[[Any, str], Any]
"""Function of a value and the setting's name that returns the value, or raises."""


def _setting(
    default: Any, check: Check, help: str | None = None, **flag: Any
) -> Any:
    """Returns a field of `Settings`.

    Args:
        check: Function that checks a value other than a default of `None`.
        help: Help text of the recipes' flag; `None` if not all have one.
        **flag: What it takes: one of `choices`, an integer up to `most`, or an
            integer or this `word`. Default: any integer, or string.
    """
    about = {"check": check, "help": help, **flag}
    return dataclasses.field(default=default, metadata=about)


def _one_of(*choices: str) -> Check:
    def check(value: Any, name: str) -> str | None:
        chosen = checked_choice(value, name, choices)
        return None if chosen == "none" else chosen

    return check


def _count_or(word: str, least: int, text: str) -> Check:
    def check(value: Any, name: str) -> int | str:
        if isinstance(value, str) and value != word:
            raise InputError(f"{text}. Received: {name}={value!r}")
        return word if value == word else checked_integer(value, name, least)

    return check


def _checked_shard(value: Any, name: str) -> Any:
    return value if callable(value) else _one_of(*SHARDS)(value, name)


def _checked_recompute(value: Any, name: str) -> Any:
    recomputed(value)
    return value


def _checked_cache(value: Any, name: str) -> XlaCache:
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, os.PathLike)) and str(value):
        return checked_path(value, name)
    raise InputError(
        f"{name} must be the path of a folder, False for none, or None for "
        f"the default. Received: {name}={value!r}"
    )


SHARDS = ("none", "optimizer", "weights", "embeddings")
"""Names of what is divided over the replicas."""

_BATCH_NORMS = ("global", "per_replica")
_OFFLOADS = ("none", "optimizer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a strategy; see `MirroredStrategy`.

    `shard` and `offload` are `None` for `"none"`. In a strategy, `shard_over` is
    a number where it was `"worker"`.

    Raises:
        InputError: If a setting is invalid whatever the devices are.
    """

    batch_norm: str = _setting(
        "global", _one_of(*_BATCH_NORMS), choices=_BATCH_NORMS
    )
    shard: Shard = _setting(
        None,
        _checked_shard,
        "What is divided over the replicas instead of copied to each: the "
        "optimizer's slots, weights too, or embedding tables. Left out: "
        "none. The result is the same.",
        choices=SHARDS,
    )
    min_shard_bytes: int = _setting(
        MIN_SHARD_BYTES, lambda value, name: checked_integer(value, name, 0)
    )
    shard_over: int | str | None = _setting(
        None,
        _count_or(
            "worker", 2, 'shard_over is a number of replicas, or "worker"'
        ),
        "Consecutive replicas over which --shard divides a variable; each such "
        "group has all of them. Left out: all replicas.",
        most=65536,
    )
    offload: str | None = _setting(
        None,
        _one_of(*_OFFLOADS),
        "What is kept in host memory, and updated there: the optimizer's slots "
        "that --shard divides, also on a single replica. Left out: none.",
        choices=_OFFLOADS,
    )
    micro_batches: int | str = _setting(
        1,
        _count_or(
            "auto",
            1,
            'micro_batches must be an integer of at least 1, or "auto"',
        ),
        "Parts in which a replica works through its rows of a batch, one after "
        "the other, to need less memory; auto: as few as fit. Results don't "
        "depend on it.",
        word="auto",
    )
    recompute: str | None = _setting(
        None,
        _checked_recompute,
        "What the backward pass computes again instead of keeping it: "
        "elementwise; auto: what it takes to fit the device; or a size to fit, "
        "such as 20GiB. Left out: nothing. Results don't depend on it.",
    )
    xla_cache: XlaCache = _setting(None, _checked_cache)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(Settings):
            value = getattr(self, one.name)
            if value is not None or one.default is not None:
                value = one.metadata["check"](value, one.name)
                object.__setattr__(self, one.name, value)
        if self.batch_norm == "per_replica" and self.micro_batches != 1:
            raise InputError(
                "batch_norm='per_replica' needs all rows of a replica at once. "
                f"Received: micro_batches={self.micro_batches!r}; use "
                "batch_norm='global', or micro_batches=1."
            )

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Settings":
        """Returns those of a function's arguments that are settings."""
        return cls(**{name: arguments[name] for name in NAMES})

    def given(self) -> dict[str, Any]:
        """Returns the settings that differ from the defaults, as keywords."""
        default = vars(Settings())
        return {k: v for k, v in vars(self).items() if v != default[k]}


NAMES = tuple(field.name for field in dataclasses.fields(Settings))
"""Names of the settings."""


def recomputed(recompute: str | None) -> str | int | None:
    """Returns what `recompute` asks for: bytes for a size, `None` for `"none"`."""
    if recompute in (None, "none"):
        return None
    if recompute in ("elementwise", "auto"):
        return recompute
    try:
        return device_memory.parse(str(recompute))
    except InputError as error:
        raise InputError(
            'recompute must be "none", "elementwise", "auto" or the size that '
            f"a step is to fit, such as 20GiB. Received: recompute={recompute!r}"
        ) from error


def settings_of_command(
    shard: str | None, micro_batches: int
) -> dict[str, Any]:
    """Returns the settings that most commands take, checked, as keywords."""
    number = checked_integer(micro_batches, "micro_batches", 1)
    return Settings(shard=shard, micro_batches=number).given()


def check_distribution_alone(settings: Settings) -> None:
    """Raises for a command's settings that the program's own strategy lacks."""
    if settings.shard is not None or settings.micro_batches != 1:
        raise InputError(
            "the program sets a keras.distribution, or makes its own strategy, "
            "which says what is divided. Received: "
            f"shard={settings.shard!r}, micro_batches={settings.micro_batches}; "
            "leave them out"
        )
