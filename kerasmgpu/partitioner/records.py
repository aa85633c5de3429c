"""What is known of each type of operation: one record, declared in one place.

The files of `rules` declare operations next to their rules. What runs before
planning, reading a graph say, asks for traits and needs no rule.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection


class Trait(enum.Enum):
    """A property of a type of operation that others ask for."""

    ADDITIVE = "adds its inputs"
    BRANCH = "runs one of its bodies; the first input says which"
    CALLS = "calls a function, which is inlined"
    CHEAP = "may as well be run anew on whole values as be gathered"
    CHECKS = "is there to fail"
    COPIED = "runs on every replica's copy of a variable"
    COUNTS_NOTHING = "is stateful, but has no state that it counts up"
    DRAWS = "draws numbers that a key and a counter give"
    ELEMENTWISE = "gives the same bits for the same inputs on every replica"
    FRAGILE = "ends the process, or gives wrong shapes, for no rows on a CPU"
    GENERATES = "makes rows out of whole values, each replica its own"
    KEEPS_NUMBERS = "hands on the numbers of rows that it gets"
    READ_ONLY = "leaves a variable as it is"
    MAKES_LIST = "makes a list for others to put something in"
    MIRRORS = "needs more rows than are padded, also where none are"
    MOVES = "only moves elements, or adds two of them"
    NEEDS_ROWS = "refuses a batch of no rows"
    NO_STATE = "is stateful by name; in any order it does the same"
    OF_LISTS = "is done to lists as wholes by each replica"
    OUTSIDE_XLA = "stays outside of what XLA compiles"
    PRIVATE_STATE = "draws from a state that no other operation sees"
    PASSES = "hands on what it gets"
    PRODUCT = "takes most of a step's time"
    RECURRENT = "is a recurrent layer, and takes as long as a product"
    SCALES = "makes no number of a 0 that meets infinity"
    SEVERAL_VALUES = "has a list of values, one for each output"
    SIZED_BY_VALUES = "has outputs whose sizes depend on values"
    UPDATES = "changes every replica's copy of a variable"
    XLA_BODIES = "is stateful by name, though it may have no effect"


@dataclasses.dataclass(frozen=True)
class Record:
    """What is known of a type of operation.

    Attributes:
        axes: Function of a node that returns its `table.Axes`, or `None`.
        plan: Function `(node, kinds)` that returns a `table.Plan`, or `None`.
        shape: Function of a node that returns its outputs' shapes, or `None`.
        value: Function of a node that returns its output's value, or `None`.
        facts: Function `(node, inference)` that sets what is known of the
            outputs; `inference` is a `facts.Inference`.
        control: Function `(node, kinds, plan)` that returns a `table.Plan` of
            an operation on lists or with bodies; `plan(body, kinds)` plans the
            graph of a function.
        bodies: Attributes that name the functions that it holds.
        linear: Numbers of inputs in which an elementwise operation is linear.
        traits: Its properties.
    """

    axes: Callable | None = None
    plan: Callable | None = None
    shape: Callable | None = None
    value: Callable | None = None
    facts: Callable | None = None
    control: Callable | None = None
    bodies: tuple[str, ...] = ()
    linear: tuple[int, ...] = ()
    traits: frozenset[Trait] = frozenset()


_UNKNOWN = Record()
_records: dict[str, Record] = {}


def operation(
    *types: str,
    axes: Callable | None = None,
    plan: Callable | None = None,
    shape: Callable | None = None,
    value: Callable | None = None,
    facts: Callable | None = None,
    control: Callable | None = None,
    bodies: tuple[str, ...] = (),
    linear: tuple[int, ...] = (),
    traits: Collection[Trait] = (),
) -> None:
    """Declares types of operations; see `Record`.

    Raises:
        ValueError: If a type was declared before.
    """
    made = Record(
        axes,
        plan,
        shape,
        value,
        facts,
        control,
        bodies,
        linear,
        frozenset(traits),
    )
    for type in types:
        if type in _records:
            raise ValueError(
                f"Operation {type!r} is declared twice; declare it once, with "
                "all of its rules and traits."
            )
        _records[type] = made


def record(type: str) -> Record:
    """The record of a type of operation; empty where nothing is declared."""
    return _records.get(type, _UNKNOWN)


def declared() -> frozenset[str]:
    """All types that are declared."""
    return frozenset(_records)
