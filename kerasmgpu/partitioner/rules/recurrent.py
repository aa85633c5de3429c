"""cuDNN's recurrent layers, whose rows are independent.

An LSTM or GRU on a GPU is one forward and one backward operation. The forward
operation keeps state for its gradient that is opaque and readable on its device
only, so the backward operation runs on the same shards.
"""

import dataclasses
from collections.abc import Sequence

from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kept,
    Kind,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Axes, Label, Labels, Plan, by_axes
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape


def forward_axes(node: Node) -> Axes | None:
    """Returns the axes of a forward operation, whose rows are independent.

    Its inputs are `(input, h, c, parameters, lengths)`, its outputs
    `(output, h, c, kept, kept)`. `input` is `[time, rows, features]`, states
    are `[layers, rows, units]`; if the operation isn't time-major, rows come
    first. A GRU has no `c`. Returns `None` if there is dropout.
    """
    if node.attr("dropout"):
        return None  # cuDNN does not document which numbers a row draws.
    rows = _rows(node)
    c = rows if node.attr("rnn_mode") == "lstm" else None
    kept = ("rows",)
    return Axes(
        (rows, rows, c, None, ("rows",)), (rows, rows, rows, kept, kept)
    )


def forward(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans to run each replica's rows; the kept state stays on the replica.

    Returns `None` if the rows aren't sharded, or if there is dropout.
    """
    axes = forward_axes(node)
    plan = None if axes is None else by_axes(node, axes, kinds)
    if plan is None or not isinstance(plan.gives[0], Sharded):
        return None
    own = plan.gives[0]
    kept = Kept(0, own.rows, own.outer, own.inner)
    gives = [*plan.gives[:3], kept, kept]
    if node.attr("rnn_mode") != "lstm":
        gives[2] = kept
    return dataclasses.replace(plan, gives=tuple(gives))


def backward(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans the gradient, sharded as the forward operation was.

    The parameters' gradient is partial. Returns `None` if the forward operation
    wasn't sharded.
    """
    kept = kinds[11]
    if not isinstance(kept, Kept):
        return None
    lengths = Sharded(0, kept.rows, kept.outer, kept.inner)
    rows = lengths.at(_rows(node).index("rows"))
    # The forward operation's inputs, its outputs, their gradients, its state.
    wants: list[Kind] = [
        rows,
        rows,
        rows,
        REPLICATED,
        lengths,
        *[rows] * 6,
        kept,
        kept,
    ]
    gives: list[Kind] = [rows, rows, rows, PARTIAL]
    if node.attr("rnn_mode") != "lstm":  # `c` is an unused scalar.
        for number in (2, 7, 10):
            wants[number] = kinds[number]
        gives[2] = kept
    return Plan(tuple(wants), tuple(gives))


def forward_shapes(node: Node) -> list[Shape | None] | None:
    """Returns the outputs' shapes; those that are unknown are `None`.

    The output has rows and time of the input; states keep their shapes.
    """
    given, h, c, *_ = (tensor.shape for tensor in node.inputs)
    output = None if given is None else (*given[:2], None)
    return [output, h, c, None, None]


operation(
    "CudnnRNNV3",
    axes=forward_axes,
    plan=forward,
    shape=forward_shapes,
    traits={
        Trait.NO_RANDOM_STATE,
        Trait.NEEDS_ROWS,
        Trait.PRIVATE_STATE,
        Trait.RECURRENT,
    },
)


def backward_shapes(node: Node) -> list[Shape | None] | None:
    """Returns the gradients' shapes: those of the first four inputs."""
    return [tensor.shape for tensor in node.inputs[:4]]


operation(
    "CudnnRNNBackpropV3",
    plan=backward,
    shape=backward_shapes,
    traits={Trait.NO_RANDOM_STATE, Trait.NEEDS_ROWS, Trait.PRIVATE_STATE},
)


def reverse_sequence(node: Node) -> Axes | None:
    """Returns the axes of `(values, lengths)`; the reversed axis must be whole.

    Returns `None` if the rank is unknown.
    """
    if node.inputs[0].shape is None:
        return None
    labels: list[Label] = list(range(len(node.inputs[0].shape)))
    batch = labels[node.attr("batch_dim")]
    labels[node.attr("seq_dim")] = None
    return Axes((tuple(labels), (batch,)), (tuple(labels),), linear=(0,))


operation("ReverseSequence", axes=reverse_sequence)


def _rows(node: Node) -> Labels:
    """Returns the labels of a tensor of three axes, one of them the rows'."""
    if node.attr("time_major"):
        return (None, "rows", None)
    return ("rows", None, None)


operation(
    "CudnnRNN",
    "CudnnRNNBackprop",
    "CudnnRNNBackpropV2",
    "CudnnRNNV2",
    traits={Trait.PRIVATE_STATE},
)
