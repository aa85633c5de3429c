"""Places where operations run: a replica, by its number, or the host."""

from collections.abc import Callable, Iterator
from typing import Any

from kerasmgpu.partitioner.step.references import Reference

HOST = -1
"""The place of operations on the host: sizes, strings, tables."""


class OnEachPlace:
    """Maps a place to a reference to a value, written there on first use.

    Args:
        make: Function of a place that writes the value and returns the
            reference to it.
        are_alike: Whether all references count as one value, as those to
            copies of a constant do.
    """

    def __init__(
        self, make: Callable[[int], Reference], are_alike: bool = False
    ) -> None:
        self._make = make
        self._made: dict[int, Reference] = {}
        self._are_alike = are_alike

    def __getitem__(self, place: int) -> Reference:
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

    def __iter__(self) -> Iterator[Any]:
        # Yields no references: `set(self)` has one entry if all are alike, else 2.
        return iter((self,) if self._are_alike else (self, None))
