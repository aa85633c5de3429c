"""Notes the `keras.distribution` that a program sets, without following it.

Commands run a program so to read its mesh and its layouts.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import keras

from kerasmgpu._keras.distribution_backend import imagined_devices
from kerasmgpu.errors import InputError
from kerasmgpu.strategies.layouts import Distribution, Layouts


@dataclasses.dataclass
class Note:
    """A distribution that a program set, and that nothing followed.

    Attributes:
        strategy: The strategy in whose scope the program builds its model, if
            it is ours: variables get their layouts in the distribution, and
            stay whole. `None` for one device.
        distribution: The last `keras.distribution.Distribution` that the
            program set; `None` before.
        finds: Arguments of `found_layout.search` if a layout is to be found
            for its mesh.
        listed: Names of the devices that `list_devices` listed.
    """

    strategy: Any = None
    distribution: Distribution | None = None
    finds: dict[str, Any] | None = None
    listed: list[str] = dataclasses.field(default_factory=list)

    def take(
        self,
        distribution: Distribution | None,
        finds: dict[str, Any] | None = None,
    ) -> None:
        """Notes what the program sets; `None`: its end."""
        if self.strategy is not None:
            self.strategy.distribution = distribution
            lays_out = distribution is not None
            self.strategy.noted_layouts = (
                Layouts(distribution) if lays_out else None
            )
        if distribution is not None:
            self.distribution, self.finds = distribution, finds


_notes: list[Note] = []
"""Notes of the `noted` contexts, the current one last."""


def current() -> Note | None:
    """Returns the note of the `noted` context that this is in, or `None`."""
    return _notes[-1] if _notes else None


def notes(
    distribution: Distribution, finds: dict[str, Any] | None, **settings: Any
) -> bool:
    """Notes the distribution of `kerasmgpu.strategy` in a `noted` context.

    Args:
        finds: See `Note`.
        **settings: Those of its arguments that a distribution doesn't have;
            `None` if they are left out.

    Returns:
        Whether it is in one, where the program goes on in the strategy that is
        there.

    Raises:
        InputError: If the step is predicted from the distribution alone, and
            there are settings.
    """
    note = current()
    if note is None:
        return False
    given = {name: value for name, value in settings.items() if value}
    if given and note.strategy is not None:
        note.listed.clear()  # Their number is not at fault.
        raise InputError(
            "This command predicts for the mesh and the layouts that build() "
            "sets, without its devices. Received: kerasmgpu.strategy("
            f"{', '.join(f'{k}={v!r}' for k, v in given.items())}); in build(), "
            "leave it out"
        )
    note.take(distribution, finds)
    return True


@contextlib.contextmanager
def noted(
    num_devices: int, device_type: str, strategy: Any = None
) -> Iterator[Note]:
    """Context in which distributions that are set are only noted.

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
