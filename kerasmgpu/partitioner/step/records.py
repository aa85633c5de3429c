"""The record of each type of operation: its rules and traits, declared once.

The files of `rules` declare operations next to their rules. Passes before
planning, such as reading a graph, need traits only.
"""

import dataclasses
import enum
from collections.abc import Callable, Collection


class Trait(enum.Enum):
    """A property of a type of operation."""

    __hash__ = object.__hash__  # That of `Enum` runs in Python.

    ADDITIVE = "adds its inputs"
    ADDS_SEGMENTS = "adds up rows that have the same number"
    ASSIGNS = "assigns a variable a new value"
    BRANCH = "runs one of its bodies, which its first input selects"
    CALLS = "calls a function; calls are inlined"
    CHEAP = "costs less to recompute on whole values than to gather"
    CHECKS = "only checks its input, and fails"
    COPIED = "runs on every replica's copy of a variable"
    NO_RANDOM_STATE = "is stateful, but has no random state"
    DRAWS = "draws numbers from a key and a counter"
    ELEMENTWISE = "gives the same bits for the same inputs on every replica"
    FRAGILE = "has a CPU kernel that fails for no rows"
    GENERATES = "generates rows: each replica generates its own"
    KEEPS_NUMBERS = "returns row numbers of its input unchanged"
    READ_ONLY = "reads a variable, or its shape, without changing it"
    READS = "returns the value of a variable"
    RUNS_PYTHON = "calls a Python function, which can raise"
    LOOP = "runs a body while its condition holds"
    MAKES_LIST = "creates a tensor list"
    MIRRORS = "needs more rows than it pads, even where it pads none"
    MOVES = "moves elements, or adds two of them"
    NEEDS_ROWS = "fails for no rows, on GPUs too"
    NO_STATE = "is declared stateful, but its order doesn't matter"
    OF_LISTS = "runs on whole lists, on every replica"
    OF_SHAPES = "reads only the shape of its input"
    OUTSIDE_XLA = "is left out of XLA clusters"
    PRIVATE_STATE = "draws from a random state that no other operation reads"
    PASSES = "returns its inputs unchanged"
    PRODUCT = "is a matrix product or convolution: most of a step's time"
    RECURRENT = "is a recurrent layer, as expensive as a product"
    SCALES = "multiplies: a partial sum of 0 times infinity is NaN"
    SEVERAL_VALUES = "has a known value for each of its outputs"
    SIZED_BY_VALUES = "has outputs whose sizes depend on values"
    UPDATES = "changes every replica's copy of a variable"
    XLA_BODIES = "is declared stateful because of its bodies"


CAN_FAIL = frozenset({Trait.CHECKS, Trait.RUNS_PYTHON})
"""Traits of operations that are there to fail, or whose failure is usual."""


@dataclasses.dataclass(frozen=True)
class Record:
    """Rules and traits of a type of operation.

    Rules return `None` where they don't apply, or nothing is known.

    Attributes:
        axes: Function of a node that returns its `table.Axes`, or `None`.
        plan: Function of a node and its inputs' kinds that returns a
            `table.Plan`, or `None`.
        shape: Function of a node that returns its outputs' shapes, or `None`;
            without it, an output's axis has the size of the inputs' axes with
            its label.
        value: Function of a node that returns its output's value, or `None`;
            with `Trait.SEVERAL_VALUES`, a list of its outputs' values.
        holds: Function of a node that returns whether its output, a boolean,
            is true whatever the batch.
        facts: Function `(node, inference)` that sets `shape`, `value` and
            `element` of the outputs; `inference` is a `facts.Inference`.
        control: Function `(node, kinds, planner)` that returns a `table.Plan`
            of an operation on lists or with bodies; `planner(body, kinds)`
            plans the graph of a body.
        bodies: Names of the attributes that hold the operation's functions.
        linear: Numbers of the inputs in which an elementwise operation is
            linear; see `table.Axes`.
        traits: Its properties.
    """

    axes: Callable | None = None
    plan: Callable | None = None
    shape: Callable | None = None
    value: Callable | None = None
    holds: Callable | None = None
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
    holds: Callable | None = None,
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
        holds,
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
    """Returns the record of a type of operation; an empty one if undeclared."""
    return _records.get(type, _UNKNOWN)


def declared() -> frozenset[str]:
    """Returns all types that the rule files imported so far declare."""
    return frozenset(_records)
