"""Reads axes from text, as in an einsum: `"...mk, ...kn -> ...mn"`."""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from kerasmgpu.partitioner.rules.table import Axes, Label, Labels
from kerasmgpu.partitioner.step.graph import Node, Tensor

_PARTS = re.compile(r"\.\.\.|[a-zA-Z_*]")

_Ranks = tuple[int | None, ...]
_Term = tuple[str, ...]
_WHOLE: _Term = ("*",)


def axes(text: str, **fields: Any) -> Callable[[Node], Axes | None]:
    """Makes a rule of text: terms of the inputs, `->`, terms of the outputs.

    | in a term | stands for |
    |---|---|
    | a letter | an axis; axes with the same letter correspond |
    | `_` | an axis that must be whole |
    | `...` | any number of axes that correspond, counted from the last |
    | `*` | any number of axes that must be whole |

    Axes of inputs that no output has are summed over. Inputs without a term
    must be whole. With `broadcasts=True`, axes of `...` can be missing or 1.

    Args:
        text: The terms, with commas between them.
        **fields: Other fields of `Axes`, `linear` for instance.

    Returns:
        Function of a node that returns its `Axes`; `None` if a tensor's rank
        doesn't fit its term, or is unknown but needed for labels.

    Raises:
        ValueError: If the text can't be read.
    """
    _terms(text)
    broadcasts = fields.get("broadcasts", False)

    def rule(node: Node) -> Axes | None:
        found = _labelled(
            text,
            tuple([tensor.rank for tensor in node.inputs]),
            tuple([tensor.rank for tensor in node.outputs]),
            broadcasts,
        )
        if found is None:
            return None
        given, made, sums = found
        if broadcasts:
            ones = _of_size_one(made, node.outputs)
            given = tuple(
                labels and _not_broadcast(labels, tensor, ones)
                for labels, tensor in zip(given, node.inputs)
            )
        return Axes(given, made, sums=sums, **fields)

    return rule


@functools.cache
def _labelled(
    text: str, given: _Ranks, made: _Ranks, broadcasts: bool
) -> tuple[tuple[Labels | None, ...], tuple[Labels, ...], Labels] | None:
    """Returns labels of the inputs and outputs, and those that are summed over.

    Args:
        given: Ranks of the inputs.
        made: Ranks of the outputs.

    Returns:
        `(inputs, outputs, sums)`; `None` if a rank doesn't fit the text, or is
        unknown but needed.
    """
    inputs, outputs = _terms(text)
    spread = _spread([*zip(inputs, given), *zip(outputs, made)])
    taken: list[Labels | None] = [None] * len(given)
    for number, (term, rank) in enumerate(zip(inputs, given)):
        if term == _WHOLE:
            continue
        labels = _labels(term, rank, spread, broadcasts)
        if labels is None or (rank is None and broadcasts):
            return None  # With broadcasting, axes of `...` may be missing.
        taken[number] = labels or None
    results = []
    for term, rank in zip(outputs, made):
        labels = _labels(term, rank, spread, broadcasts)
        if labels is None:
            return None
        results.append(labels)
    seen = dict.fromkeys(label for labels in taken for label in labels or ())
    kept = {None, *(label for labels in results for label in labels)}
    sums = tuple(label for label in seen if label not in kept)
    return tuple(taken), tuple(results), sums


@functools.cache
def _terms(text: str) -> tuple[tuple[_Term, ...], tuple[_Term, ...]]:
    """Splits text into the terms of the inputs and those of the outputs.

    Raises:
        ValueError: If the text can't be read.
    """
    sides = text.replace(" ", "").split("->")
    read = [[_PARTS.findall(term) for term in s.split(",")] for s in sides]
    if len(read) != 2 or ["".join(map("".join, s)) for s in read] != [
        side.replace(",", "") for side in sides
    ]:
        raise ValueError(
            "Axes are written as terms of letters, `_`, `...` and `*`, such as "
            f'"...mk, ...kn -> ...mn". Received: {text!r}.'
        )
    inputs, outputs = (tuple(map(tuple, side)) for side in read)
    return inputs, outputs


def _fixed(term: _Term) -> int:
    """Returns the number of a term's axes besides those of `...` and `*`."""
    return len(term) - term.count("...") - term.count("*")


def _spread(sides: Iterable[tuple[_Term, int | None]]) -> int | None:
    """Returns the most axes that `...` stands for; `None` if unknown."""
    return max(
        (
            rank - _fixed(term)
            for term, rank in sides
            if "..." in term and "*" not in term and rank is not None
        ),
        default=None,
    )


def _labels(
    term: _Term, rank: int | None, spread: int | None, broadcasts: bool
) -> Labels | None:
    """Returns labels of a tensor's axes; `None` if its rank doesn't fit.

    Args:
        spread: The number of axes that `...` stands for; `None` if unknown.
    """
    common = spread if "..." in term else 0
    if common is None or (rank is None and "*" in term):
        return None
    if rank is None:
        rank = _fixed(term) + common
    rest = rank - _fixed(term) - common
    if "*" not in term and rest < 0 and broadcasts and "..." in term:
        common, rest = common + rest, 0
    if common < 0 or rest < 0 or (rest and "*" not in term):
        return None
    labels: list[Label] = []
    for part in term:
        if part == "...":
            labels += range(-common, 0)
        elif part == "*":
            labels += [None] * rest
        else:
            labels.append(None if part == "_" else part)
    return tuple(labels)


def _of_size_one(
    made: Iterable[Labels], tensors: Iterable[Tensor]
) -> set[Label]:
    """Returns the labels of those axes of outputs that have size 1."""
    return {
        label
        for labels, tensor in zip(made, tensors)
        for label, size in zip(labels, tensor.shape or ())
        if size == 1
    }


def _not_broadcast(labels: Labels, tensor: Tensor, ones: set[Label]) -> Labels:
    """Returns labels with `None` for axes of size 1 that are broadcast."""
    if tensor.shape is None:
        return labels
    return tuple(
        None
        if isinstance(label, int) and size == 1 and label not in ones
        else label
        for label, size in zip(labels, tensor.shape)
    )
