"""Infers facts about the elements of tensor lists, by fixed-point iteration.

The backward pass of a loop reads the elements that its forward pass inserted,
and TensorFlow seldom knows their shapes. Inference therefore runs several
times. Each pass assumes the facts (shapes and values) that the previous one
found for inserted elements. An assumption holds if, under it, all inserted
elements agree with it; sizes that disagree become unknown.
"""

from collections.abc import Hashable, Iterable
from typing import Any, TypeAlias

from kerasmgpu.partitioner.step.sizes import Shape, Value

Element: TypeAlias = "Shape | Elements | None"
"""The shape of a handle's variable, or the facts about a list's elements;
`None` if unknown. See `graph.Tensor`."""


def common_sizes(one: Shape | None, two: Shape | None) -> Shape | None:
    """Keeps the sizes that are equal in two shapes; the others become `None`.

    Returns `None` if the ranks differ, or if one is unknown.
    """
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(a if a == b else None for a, b in zip(one, two))


def common(one: "Element", two: "Element") -> "Element":
    """Returns what holds for both elements; `None` if nothing is known.

    The arguments are `Tensor.element`s. Two lists are joined, since the result
    can be either. A list paired with anything else loses what is known of its
    elements.
    """
    if isinstance(one, Elements) and isinstance(two, Elements):
        one.join(two)
        return one
    # A list and something else: nothing is known of its elements.
    if isinstance(one, Elements):
        one.put(one, None)
        return None
    if isinstance(two, Elements):
        two.put(two, None)
        return None
    return common_sizes(one, two)


class Elements:
    """Facts about the elements of a list, and of all lists that may alias it.

    Attributes:
        shape: The assumed shape of all elements; `None` if none is assumed.
        value: The assumed `Tensor.value` of all elements, if they hold sizes;
            otherwise `None`.
    """

    def __init__(self) -> None:
        self._joined: Elements | None = None
        self._assumed: tuple[Any, ...] = (None, None)
        self._given_up = (_Discarded(), _Discarded())
        self._put: dict[Hashable, tuple[Any, ...]] = {}

    @property
    def shape(self) -> Shape | None:
        return self._cell()._assumed[0]

    @property
    def value(self) -> "Value":
        return self._cell()._assumed[1]

    @property
    def is_joined(self) -> bool:
        """Whether another object, to which it was joined, holds its facts."""
        return self._joined is not None

    def put(
        self, node: Hashable, shape: Shape | None, value: "Value" = None
    ) -> None:
        """Records the facts of an inserted element.

        Args:
            node: Key of the insertion, such as the `Node` that inserts it; its
                earlier facts are replaced.
        """
        self._cell()._put[node] = (shape, value)

    def join(self, other: "Elements") -> None:
        """Records that two lists may alias, so that they share their facts."""
        one, two = self._cell(), other._cell()
        if one is not two:
            two._joined = one
            one._put.update(two._put)

    def assume(self) -> bool:
        """Updates the assumption to what is known of the inserted elements.

        Each size is the first that is known of one of them, unless it was given
        up. Returns whether the assumption changed.
        """
        before = self._assumed
        self._assumed = tuple(
            rule.applied(_agreement([put[n] for put in self._put.values()]))
            for n, rule in enumerate(self._given_up)
        )
        return self._assumed != before

    def give_up(self, wholly: bool = False) -> bool:
        """Gives up, for good, assumptions that an element doesn't confirm.

        They stay in force until `assume` is called, which leaves them out.
        Returns whether any were given up.

        Args:
            wholly: Whether to give up all assumptions instead.
        """
        found = False
        for n, rule in enumerate(self._given_up):
            for put in (
                [None] if wholly else [put[n] for put in self._put.values()]
            ):
                found |= rule.give_up(self._assumed[n], put)
        return found

    def clear(self) -> None:
        """Forgets the inserted elements; the next pass records them anew."""
        self._put = {}

    def _cell(self) -> "Elements":
        return self if self._joined is None else self._joined._cell()


class _Discarded:
    """Remembers which entries of an assumed shape or value stay unknown."""

    def __init__(self) -> None:
        self._all = False
        self._entries: set[int] = set()

    def applied(self, assumed: Any) -> Any:
        """Returns an assumption with `None` for what was given up."""
        if self._all or not isinstance(assumed, tuple):
            return None if self._all else assumed
        return tuple(
            None if n in self._entries else size
            for n, size in enumerate(assumed)
        )

    def give_up(self, assumed: Any, found: Any) -> bool:
        """Gives up entries of an assumption that a result doesn't confirm.

        All are given up if the lengths differ. Returns whether there were any.
        """
        if assumed is None or assumed == found:
            return False
        if (
            not isinstance(assumed, tuple)
            or common_sizes(assumed, found) is None
        ):
            self._all = True
            return True
        wrong = {
            n
            for n, (one, two) in enumerate(zip(assumed, found))
            if one is not None and one != two
        }
        self._entries |= wrong
        return bool(wrong)


def _agreement(facts: Iterable[Any]) -> Any:
    """Merges several shapes or values; each entry is the first that is known.

    Returns `None` if all are unknown, or if two have different lengths.
    """
    result = None
    for known in facts:
        if known is None:
            continue
        if result is None:
            result = known
        elif isinstance(known, tuple) and isinstance(result, tuple):
            if len(known) != len(result):
                return None
            result = tuple(b if a is None else a for a, b in zip(result, known))
    return result
