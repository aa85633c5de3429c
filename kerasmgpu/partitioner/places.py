"""Where operations run: on a replica, by its number, or on the host."""

HOST = -1
"""The place of what runs on the host: sizes, strings, tables."""


class OnEachPlace:
    """References to a value that each place makes when it needs it.

    Args:
        make: Function of a place that returns the reference.
        are_alike: Whether they count as one value, as a constant's do.
    """

    def __init__(self, make, are_alike=False):
        self._make = make
        self._made = {}
        self._are_alike = are_alike

    def __getitem__(self, place):
        if place not in self._made:
            self._made[place] = self._make(place)
        return self._made[place]

    def __iter__(self):
        # For who asks whether all references are the same.
        return iter((self,) if self._are_alike else (self, None))
