"""Bounds how many rounds (iterations) a loop runs, as a symbolic size."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.sizes import SizeLike


def rounds_of(loop: Node, earlier: Mapping[Node, Any]) -> SizeLike | None:
    """Returns the most rounds that a loop can run; `None` if unknown.

    This bound follows from the limit of a counter, if the loop's condition
    compares one with a known size; otherwise from the length of the longest
    list that the loop takes. A loop that can end earlier, such as a decoder at
    the end of a sentence, counts as one that runs to its limit.

    Args:
        earlier: Maps the loops before it to their rounds. A gradient's loop has
            as many rounds as its forward loop.
    """
    condition, body = loop.bodies
    bounds = [
        bound
        for test in _tests(condition.outputs[0])
        for bound in [_bound(loop, condition, body, test, earlier)]
        if bound is not None
    ]
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    if numbers:
        return max(min(numbers), 0)
    if bounds:
        return bounds[0]
    lengths = [length for length in _lengths(loop) if length is not None]
    numbers = [length for length in lengths if isinstance(length, int)]
    return max(numbers) if numbers else next(iter(lengths), None)


def _tests(condition: Tensor) -> Iterator[Node]:
    """Yields the comparisons `a < b` that must all hold for another round."""
    if condition.node.type == "LogicalAnd":
        for tensor in condition.node.inputs:
            yield from _tests(tensor)
    elif condition.node.type == "Less":
        yield condition.node


def _bound(
    loop: Node,
    condition: Graph,
    body: Graph,
    test: Node,
    earlier: Mapping[Node, Any],
) -> SizeLike | None:
    """Returns the rounds until `counter < limit` fails; `None` if unknown.

    The counter has to be a loop variable that each round increases by 1.
    """
    counter, limit = test.inputs
    if counter not in condition.inputs:
        return None
    number = condition.inputs.index(counter)
    start = loop.inputs[number].value
    step = body.outputs[number].node
    given = [tensor.value for tensor in step.inputs]
    if (
        step.type not in ("Add", "AddV2")
        or body.inputs[number] not in step.inputs
        or 1 not in given
        or start is None
    ):
        return None
    end = limit.value
    if end is None and limit in condition.inputs:
        place = condition.inputs.index(limit)
        outer = loop.inputs[place]
        end = outer.value
        if end is None and outer.index == 0 and place <= 2:
            # A gradient's loop counts to its forward loop's last count.
            end = earlier.get(outer.node)
    return None if end is None else cast(SizeLike, end - start)


def _lengths(loop: Node) -> Iterator[SizeLike | None]:
    for tensor in loop.inputs:
        maker = tensor.node
        if maker.type == "TensorListReserve":
            size = maker.inputs[1].value
            yield size[0] if isinstance(size, tuple) else size
        elif maker.type == "TensorListFromTensor" and maker.inputs[0].shape:
            yield maker.inputs[0].shape[0]
