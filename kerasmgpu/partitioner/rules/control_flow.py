"""Loops, branches and lists of tensors."""

from kerasmgpu.partitioner.graph import BODIES
from kerasmgpu.partitioner.kinds import (
    REPLICATED,
    ListOf,
    LocalSizes,
    Meeting,
    Partial,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Plan

FACTS = {}
"""Type of operation to function `(node, infer)` that sets what is known."""

CONTROL = {}
"""Type of operation to function `(node, kinds, plan)` that returns a `Plan`.

`plan(body, kinds)` plans the graph of a function.
"""

_MOST_PASSES = 20


def _facts(*types):
    return _register(FACTS, types)


def _control(*types):
    return _register(CONTROL, types)


def _register(table, types):
    def register(function):
        for type in types:
            table[type] = function
        return function

    return register


# Loops -----------------------------------------------------------------------


@_facts("While", "StatelessWhile")
def while_facts(node, infer):
    """Sizes are those that stay the same from one pass to the next."""
    condition, body = node.bodies
    shapes = [tensor.shape for tensor in node.inputs]
    elements = [tensor.element for tensor in node.inputs]
    values = [
        tensor.value if body.outputs[n] is body.inputs[n] else None
        for n, tensor in enumerate(node.inputs)
    ]
    for _ in range(_MOST_PASSES):
        _give(body, shapes, elements, values)
        infer(body)
        before = list(shapes), list(elements)
        for n, tensor in enumerate(body.outputs):
            shapes[n] = _common(shapes[n], tensor.shape)
            elements[n] = _common(elements[n], tensor.element)
        if (shapes, elements) == before:
            break
    _give(condition, shapes, elements, values)
    infer(condition)
    for n, tensor in enumerate(node.outputs):
        tensor.shape, tensor.element = shapes[n], elements[n]
        tensor.value = values[n]
        _complete(tensor)


def _give(graph, shapes, elements, values):
    for n, tensor in enumerate(graph.inputs):
        tensor.shape, tensor.element = shapes[n], elements[n]
        tensor.value = values[n]
        _complete(tensor)


def _common(one, two):
    """The sizes that two shapes agree on."""
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(a if a == b else None for a, b in zip(one, two))


def _complete(tensor):
    from kerasmgpu.partitioner.facts import complete

    complete(tensor)


@_control("While", "StatelessWhile")
def while_plan(node, kinds, plan):
    """Kinds of loop variables are those that hold for every pass."""
    condition, body = node.bodies
    meetings = [Meeting(kind) for kind in kinds]
    plans = None
    for _ in range(_MOST_PASSES):
        given = [meeting.kind for meeting in meetings]
        plans = plan(body, given)
        changed = False
        for meeting, tensor in zip(meetings, body.outputs):
            changed |= _meet(meeting, plans.kinds[tensor])
        if not changed:
            break
    given = tuple(meeting.kind for meeting in meetings)
    return Plan(given, given, details=(plan(condition, given), plans))


def _meet(meeting, kind):
    if isinstance(kind, ListOf) and isinstance(meeting.kind, ListOf):
        return meeting.kind.join(kind)
    return meeting.add(kind)


# Branches --------------------------------------------------------------------


@_facts("If", "StatelessIf", "Case", "StatelessCase")
def branch_facts(node, infer):
    for body in node.bodies:
        for inner, outer in zip(body.inputs, node.inputs[1:]):
            inner.shape, inner.value = outer.shape, outer.value
            inner.element = outer.element
            _complete(inner)
        infer(body)
    for n, tensor in enumerate(node.outputs):
        given = [body.outputs[n] for body in node.bodies]
        shape, element, value = given[0].shape, given[0].element, given[0].value
        for other in given[1:]:
            shape = _common(shape, other.shape)
            element = _common(element, other.element)
            value = value if value == other.value else None
        tensor.shape, tensor.element, tensor.value = shape, element, value
        _complete(tensor)


@_control("If", "StatelessIf", "Case", "StatelessCase")
def branch_plan(node, kinds, plan):
    """Outputs have the kind that those of all branches can have."""
    given = kinds[1:]
    plans = [plan(body, given) for body in node.bodies]
    meetings = [Meeting() for _ in node.outputs]
    for body, planned in zip(node.bodies, plans):
        for meeting, tensor in zip(meetings, body.outputs):
            _meet(meeting, planned.kinds[tensor])
    return Plan(
        (REPLICATED, *given),
        tuple(meeting.kind for meeting in meetings),
        details=tuple(plans),
    )


# Lists -----------------------------------------------------------------------


@_facts("TensorListReserve", "EmptyTensorList")
def new_list_facts(node, infer):
    value = node.inputs[0].value
    if isinstance(value, tuple):
        node.outputs[0].element = tuple(
            None if size == -1 else size for size in value
        )


@_facts("TensorListFromTensor")
def from_tensor_facts(node, infer):
    shape = node.inputs[0].shape
    node.outputs[0].element = None if shape is None else shape[1:]


@_facts(
    "TensorListSetItem",
    "TensorListPushBack",
    "TensorListResize",
    "TensorListConcatLists",
)
def same_list_facts(node, infer):
    node.outputs[0].element = node.inputs[0].element


@_facts("TensorListGetItem", "TensorListPopBack")
def item_facts(node, infer):
    element = node.inputs[0].element
    item = node.outputs[-1]
    if node.type == "TensorListPopBack":
        node.outputs[0].element = element
    if element is not None and None not in element:
        item.shape = element


@_facts("TensorListStack")
def stack_facts(node, infer):
    element, out = node.inputs[0].element, node.outputs[0]
    if element is None:
        return
    count = out.shape[0] if out.shape else node.attr("num_elements")
    if count is None or (isinstance(count, int) and count < 0):
        count = None
    out.shape = (count, *element)


@_control("TensorListReserve", "EmptyTensorList")
def new_list(node, kinds, plan):
    """Each replica has a list for its parts."""
    made = plan.lists.setdefault(node, ListOf())
    return Plan((_element_shape(made.kind), REPLICATED), (made,))


def _element_shape(kind):
    return LocalSizes(kind) if isinstance(kind, Sharded) else REPLICATED


@_control("TensorListFromTensor")
def from_tensor(node, kinds, plan):
    """`(tensor, element_shape)`: the first axis is cut up, so it is whole."""
    kind = kinds[0]
    made = plan.lists.setdefault(node, ListOf())
    if isinstance(kind, Sharded) and kind.axis > 0:
        item = kind.at(kind.axis - 1)
        made.put(item)
        return Plan((kind, LocalSizes(item)), (made,))
    made.put(REPLICATED)
    return Plan((REPLICATED, REPLICATED), (made,))


@_control("TensorListSetItem", "TensorListPushBack")
def put_item(node, kinds, plan):
    """`(list, [index,] item)`."""
    made, kind = kinds[0], kinds[-1]
    if isinstance(kind, Partial):
        kind = REPLICATED
    made.put(kind)
    wanted = made.kind
    rest = (REPLICATED,) * (len(kinds) - 2)
    return Plan((made, *rest, wanted), (made,))


@_control("TensorListGetItem", "TensorListPopBack")
def get_item(node, kinds, plan):
    """`(list, [index,] element_shape)`."""
    made = kinds[0]
    kind = made.kind or REPLICATED
    shape = _element_shape(kind)
    rest = (REPLICATED,) * (len(kinds) - 2)
    gives = (kind,) if node.type == "TensorListGetItem" else (made, kind)
    return Plan((made, *rest, shape), gives)


@_control("TensorListStack")
def stack(node, kinds, plan):
    """`(list, element_shape)`: a new first axis."""
    made = kinds[0]
    kind = made.kind or REPLICATED
    gives = kind.at(kind.axis + 1) if isinstance(kind, Sharded) else kind
    return Plan((made, _element_shape(kind)), (gives,))


@_control("TensorListLength", "TensorListResize")
def of_list(node, kinds, plan):
    made = kinds[0]
    gives = made if node.type == "TensorListResize" else REPLICATED
    return Plan((made, *(REPLICATED,) * (len(kinds) - 1)), (gives,))


@_facts("TensorListElementShape")
def element_shape_facts(node, infer):
    """Sizes that TensorFlow would only know as -1 may be told."""
    element = node.inputs[0].element
    if element is not None and None not in element:
        node.outputs[0].value = element


_OF_LISTS = {"AddN", "Identity", "Select", "SelectV2", "ZerosLike"}


def of_lists(node, kinds):
    """What is done to lists as wholes is done to each replica's.

    Other operations get lists of whole elements.
    """
    lists = [kind for kind in kinds if isinstance(kind, ListOf)]
    if node.type not in _OF_LISTS:
        for kind in lists:
            kind.must_be_whole()
        return Plan(tuple(kinds), (REPLICATED,) * len(node.outputs))
    for other in lists[1:]:
        lists[0].join(other)
    return Plan(tuple(kinds), (lists[0],))


__all__ = ["BODIES", "CONTROL", "FACTS"]
