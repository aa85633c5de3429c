"""Makes a `keras.distribution` the strategy in which the program goes on.

`keras.distribution.set_distribution` calls `follow`: models that are made from
then on are those of the distribution's strategy, as in `strategy.scope()`.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras.distribution_backend import imagined_devices
from kerasmgpu.engine import entered
from kerasmgpu.errors import InputError
from kerasmgpu.strategies.layouts import ABSTRACT, Distribution, Layouts

_ATTRIBUTE = "_kerasmgpu_strategy"
"""Attribute of a distribution that holds its strategy."""


def strategy_of(distribution: Distribution) -> Any:
    """Returns the strategy of a distribution, made at the first call.

    Raises:
        InputError: If a device of its mesh is not available.
    """
    from kerasmgpu.strategies import strategy  # It imports this module.

    if not hasattr(distribution, _ATTRIBUTE):
        made: Any = strategy(distribution=distribution)
        made.extended.has_scope_of_program = False
        setattr(distribution, _ATTRIBUTE, made)
    return getattr(distribution, _ATTRIBUTE)


def follow(distribution: Distribution | None) -> None:
    """Enters the strategy of a distribution, and leaves the one before.

    Args:
        distribution: `keras.distribution.Distribution`; `None`: one device.

    Raises:
        InputError: In the scope of a strategy; if it is no distribution, or a
            device of its mesh is not available.
    """
    lays_out_nothing = type(distribution) in (type(None), ABSTRACT)
    if _notes:
        _notes[-1].take(None if lays_out_nothing else distribution)
        return
    if entered.current() is None and tf.distribute.has_strategy():
        if distribution is None:
            return
        raise InputError(
            "A distribution can't be set in the scope of a strategy. "
            f"Received: {distribution}; set it outside of `with "
            "strategy.scope():`, or use only one of the two. Of the commands "
            "that build a model, flops, memory, plan and verify take programs "
            "that set one"
        )
    entered.enter(None if lays_out_nothing else strategy_of(distribution))


@dataclasses.dataclass
class Note:
    """A distribution that a program set, and that nothing followed.

    Attributes:
        strategy: The strategy in whose scope the program builds its model, if
            it is ours: variables get their layouts in the distribution, and
            stay whole. `None` for one device.
        distribution: The last `keras.distribution.Distribution` that the
            program set; `None` before.
        listed: Names of the devices that `list_devices` listed.
    """

    strategy: Any = None
    distribution: Distribution | None = None
    listed: list[str] = dataclasses.field(default_factory=list)

    def take(self, distribution: Distribution | None) -> None:
        """Notes what the program sets; `None`: its end."""
        if self.strategy is not None:
            self.strategy.distribution = distribution
            lays_out = distribution is not None
            self.strategy.noted_layouts = (
                Layouts(distribution) if lays_out else None
            )
        if distribution is not None:
            self.distribution = distribution


_notes: list[Note] = []
"""Notes of the `noted` contexts, the current one last."""


@contextlib.contextmanager
def noted(
    num_devices: int, device_type: str, strategy: Any = None
) -> Iterator[Note]:
    """Context in which distributions that are set are only noted.

    Commands run a program in it to read its mesh and layouts.
    `keras.distribution.list_devices` lists devices that needn't exist.

    Args:
        num_devices: Integer, devices that `list_devices` lists.
        strategy: See `Note`.
    """
    note, before = Note(strategy), keras.distribution.distribution()
    _notes.append(note)
    try:
        with imagined_devices(num_devices, device_type) as note.listed:
            yield note
    finally:
        keras.distribution.set_distribution(before)
        _notes.remove(note)
