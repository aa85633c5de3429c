"""Rules of loops and branches."""

from collections.abc import Sequence

import tensorflow as tf

from kerasmgpu.partitioner.rules.kinds import (
    REPLICATED,
    Kind,
    MergedKind,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.protocols import Inference, Planner
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step import elements as held
from kerasmgpu.partitioner.step.elements import Element
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape, Value

_MOST_PASSES = 20


# Loops -----------------------------------------------------------------------


def while_facts(node: Node, inference: Inference) -> None:
    """Sets facts of a loop's outputs that hold after every iteration.

    Infers those of its bodies, too.
    """
    condition, body = node.bodies
    shapes = [tensor.shape for tensor in node.inputs]
    elements = [tensor.element for tensor in node.inputs]
    values = [
        tensor.value if body.outputs[n] is body.inputs[n] else None
        for n, tensor in enumerate(node.inputs)
    ]
    for _ in range(_MOST_PASSES):
        _give(body.inputs, shapes, elements, values)
        inference.infer(body)
        before = list(shapes), list(elements)
        for n, tensor in enumerate(body.outputs):
            shapes[n] = held.common_sizes(shapes[n], tensor.shape)
            elements[n] = held.common(elements[n], tensor.element)
        if (shapes, elements) == before:
            break
    _give(condition.inputs, shapes, elements, values)
    inference.infer(condition)
    _give(node.outputs, shapes, elements, values)


def _give(
    tensors: Sequence[Tensor],
    shapes: Sequence[Shape | None],
    elements: Sequence[Element],
    values: Sequence[Value],
) -> None:
    """Sets `shape`, `element` and `value`; unknown sizes get symbols."""
    for n, tensor in enumerate(tensors):
        tensor.shape, tensor.element = shapes[n], elements[n]
        tensor.value = values[n]
        tensor.complete()


def while_plan(node: Node, kinds: Sequence[Kind], planner: Planner) -> Plan:
    """Plans a loop: each of its variables has one kind in all iterations."""
    condition, body = node.bodies
    merged_kinds = [MergedKind() for _ in kinds]
    for number, (merged, kind) in enumerate(zip(merged_kinds, kinds)):
        tensor = node.outputs[number]
        if tensor.dtype == tf.resource:
            merged.kind = kind  # A handle is passed on as it is.
            continue
        merged.add(kind, tensor.shape)
        if is_of_variable(kind) and body.outputs[number] is body.inputs[number]:
            # A weight is gathered once, and not in each iteration.
            merged.must_be_whole()
    plans = None
    for _ in range(_MOST_PASSES):
        given = [merged.kind or REPLICATED for merged in merged_kinds]
        plans = planner(body, given)
        changed = False
        for merged, made, tensor in zip(
            merged_kinds, node.outputs, body.outputs
        ):
            if made.dtype == tf.resource:
                continue
            changed |= merged.add(plans.kinds[tensor], made.shape)
            if planner.is_taken(node, made.index, merged.kind):
                merged.must_be_whole()
                changed = True
        if not changed:
            break
    settled = tuple(merged.kind or REPLICATED for merged in merged_kinds)
    details = planner(condition, settled), plans
    return Plan(settled, settled, details=details)


for _type, _traits in (("While", {Trait.XLA_BODIES}), ("StatelessWhile", ())):
    operation(
        _type,
        facts=while_facts,
        control=while_plan,
        bodies=("cond", "body"),
        traits={Trait.LOOP, *_traits},
    )


# Branches --------------------------------------------------------------------


def branch_facts(node: Node, inference: Inference) -> None:
    """Sets facts of a branch's outputs that hold whichever body runs.

    Infers those of its bodies, too.
    """
    for body in node.bodies:
        for inner, outer in zip(body.inputs, node.inputs[1:]):
            inner.shape, inner.value = outer.shape, outer.value
            inner.element = outer.element
            inner.complete()
        inference.infer_branch(body)
    for n, tensor in enumerate(node.outputs):
        given = [body.outputs[n] for body in node.bodies]
        shape, element, value = given[0].shape, given[0].element, given[0].value
        for other in given[1:]:
            shape = held.common_sizes(shape, other.shape)
            element = held.common(element, other.element)
            value = value if value == other.value else None
        tensor.shape, tensor.element, tensor.value = shape, element, value
        tensor.complete()


def branch_plan(node: Node, kinds: Sequence[Kind], planner: Planner) -> Plan:
    """Plans a branch: each output has a kind that all bodies can give it."""
    given = kinds[1:]
    plans = [planner(body, given) for body in node.bodies]
    merged_kinds = [MergedKind() for _ in node.outputs]
    for body, planned in zip(node.bodies, plans):
        for merged, made, tensor in zip(
            merged_kinds, node.outputs, body.outputs
        ):
            merged.add(planned.kinds[tensor], made.shape)
            if planner.is_taken(node, made.index, merged.kind):
                merged.must_be_whole()
    return Plan(
        (REPLICATED, *given),
        tuple(merged.kind or REPLICATED for merged in merged_kinds),
        details=tuple(plans),
    )


for _type, _traits in (("If", {Trait.XLA_BODIES}), ("StatelessIf", ())):
    operation(
        _type,
        facts=branch_facts,
        control=branch_plan,
        bodies=("then_branch", "else_branch"),
        traits={Trait.BRANCH, *_traits},
    )

operation(
    "Case",
    "StatelessCase",
    facts=branch_facts,
    control=branch_plan,
    bodies=("branches",),
    traits={Trait.BRANCH},
)
