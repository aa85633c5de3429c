"""Tensor lists, as loops have them."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from kerasmgpu.partitioner.rules.kinds import (
    REPLICATED,
    Kind,
    ListOf,
    LocalSizes,
    Partial,
    Sharded,
)
from kerasmgpu.partitioner.rules.protocols import Inference, Planner
from kerasmgpu.partitioner.rules.table import Plan, whole
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.elements import common
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import SizeLike

ListRule: TypeAlias = Callable[[Node, ListOf, Sequence[Kind]], Plan]
"""Function that plans an operation on a list: `(node, list, inputs' kinds)`."""

Control: TypeAlias = Callable[[Node, Sequence[Kind], Planner], Plan]
"""See `records.Record.control`."""


def empty_list_facts(node: Node, inference: Inference) -> None:
    """Gives the output the facts of a new, empty list."""
    node.outputs[0].element = inference.elements(node)


def reserved_list_facts(node: Node, inference: Inference) -> None:
    """Gives the output the facts of a new list; unset elements are zeros.

    They have the given shape, if it is known.
    """
    elements = inference.elements(node)
    value = node.inputs[0].value
    if isinstance(value, tuple) and not {None, -1}.intersection(value):
        elements.put(node, inference.lasting(value))
    node.outputs[0].element = elements


def from_tensor_facts(node: Node, inference: Inference) -> None:
    """Gives the output the facts of a list of slices along the first axis."""
    elements = inference.elements(node)
    shape = node.inputs[0].shape
    item = None if shape is None else shape[1:]
    elements.put(node, inference.lasting(item))
    node.outputs[0].element = elements


def put_item_facts(node: Node, inference: Inference) -> None:
    """Records facts of the inserted item; the output has the list's facts."""
    elements = node.inputs[0].element
    if elements is not None:
        item = node.inputs[-1]
        elements.put(
            node, inference.lasting(item.shape), inference.lasting(item.value)
        )
    node.outputs[0].element = elements


def same_list_facts(node: Node, inference: Inference) -> None:
    """Gives the output the facts of the input's list."""
    node.outputs[0].element = node.inputs[0].element


def zeros_like_facts(node: Node, inference: Inference) -> None:
    """Gives the output the facts of a list of zeros, shaped as the input's.

    Does nothing if the input isn't a list.
    """
    like = node.inputs[0].element
    if node.outputs[0].dtype == tf.variant and like is not None:
        elements = inference.elements(node)
        elements.put(node, like.shape)
        node.outputs[0].element = elements


def of_lists_facts(node: Node, inference: Inference) -> None:
    """Gives the output the facts that hold for all input lists.

    The lists' facts are joined, since the output can be any of them. Does
    nothing if the output isn't a list.
    """
    if node.outputs[0].dtype == tf.variant:
        lists = [t for t in node.inputs if t.dtype == tf.variant]
        element = lists[0].element
        for other in lists[1:]:
            element = common(element, other.element)
        node.outputs[0].element = element


operation("TensorListConcatLists", facts=of_lists_facts)


def item_facts(node: Node, inference: Inference) -> None:
    """Gives the item the facts that hold for all elements of the list.

    A `TensorListPopBack` also returns the list, with its facts.
    """
    elements = node.inputs[0].element
    if node.type == "TensorListPopBack":
        node.outputs[0].element = elements
    if elements is not None and elements.shape is not None:
        # Sizes unknown here are TensorFlow's static ones, or get symbols.
        item = node.outputs[-1]
        item.shape = sizes.filled_in(elements.shape, item.static)
        item.value = elements.value


def stack_facts(node: Node, inference: Inference) -> None:
    """Sets the output's shape: the number of elements, then their shape.

    Does nothing if their shape is unknown.
    """
    elements, out = node.inputs[0].element, node.outputs[0]
    if elements is None or elements.shape is None:
        return
    count = _length(node.inputs[0])
    if count is None:
        count = out.shape[0] if out.shape else node.attr("num_elements")
    if isinstance(count, int) and count < 0:
        count = None
    out.shape = sizes.filled_in((count, *elements.shape), out.static)


def _length(made: Tensor) -> SizeLike | None:
    """Returns the length of a list, such as a `tf.TensorArray`'s in a loop.

    Returns `None` if it is unknown, or if a loop does more than set items.
    """
    made = _before_items(made)
    node, number = made.node, made.index
    if Trait.LOOP in node.traits:
        body = node.bodies[1]
        if _before_items(body.outputs[number]) is not body.inputs[number]:
            return None
        return _length(node.inputs[number])
    if node.type == "TensorListReserve":
        value = node.inputs[1].value
        return None if isinstance(value, tuple) else value
    return None


def _before_items(made: Tensor) -> Tensor:
    """Returns the list before its items were set, which has the same length."""
    while made.node.type == "TensorListSetItem" and not made.node.attr(
        "resize_if_index_out_of_bounds"
    ):
        made = made.node.inputs[0]
    return made


def element_shape_facts(node: Node, inference: Inference) -> None:
    """Sets the output's value to the elements' shape, if it is fully known.

    TensorFlow itself may know only -1, an unknown size.
    """
    elements = node.inputs[0].element
    if elements is None or elements.shape is None:
        return
    if None not in elements.shape:
        node.outputs[0].value = elements.shape


operation("TensorListElementShape", facts=element_shape_facts)


def new_list(node: Node, kinds: Sequence[Kind], planner: Planner) -> Plan:
    """Plans a new list on each replica; its elements can be shards."""
    made = planner.lists.setdefault(node, ListOf())
    return Plan((_element_shape(made.kind), REPLICATED), (made,))


operation(
    "EmptyTensorList",
    facts=empty_list_facts,
    control=new_list,
    traits={Trait.MAKES_LIST},
)

operation(
    "TensorListReserve",
    facts=reserved_list_facts,
    control=new_list,
    traits={Trait.MAKES_LIST},
)


def _element_shape(kind: Kind | None) -> Kind:
    """Returns the kind of the input `element_shape` for elements of a kind."""
    return LocalSizes(kind) if isinstance(kind, Sharded) else REPLICATED


def kept_list(node: Node, kinds: Sequence[Kind], planner: Planner) -> Plan:
    """Plans a read of an `Optional`; lists in it have whole elements.

    So do the lists that were put into it: see `of_lists`.
    """
    gives: list[Kind] = [REPLICATED] * len(node.outputs)
    for number, tensor in enumerate(node.outputs):
        if tensor.dtype == tf.variant:
            gives[number] = made = planner.lists.setdefault(tensor, ListOf())
            made.must_be_whole()
    return Plan(tuple(kinds), tuple(gives))


operation("OptionalGetValue", control=kept_list)


def from_tensor(node: Node, kinds: Sequence[Kind], planner: Planner) -> Plan:
    """Plans a list of slices along the first axis, `(tensor, element_shape)`.

    The list, or one joined with it, can have other elements that are sharded.
    Then this tensor is sharded as well.
    """
    kind = kinds[0]
    made = planner.lists.setdefault(node, ListOf())
    shape = node.inputs[0].shape and node.inputs[0].shape[1:]
    if isinstance(kind, Sharded) and kind.axis > 0:
        made.put(kind.at(kind.axis - 1), shape)
    else:
        made.put(REPLICATED, shape)
    item = made.kind
    if not isinstance(item, Sharded):
        return Plan((REPLICATED, REPLICATED), (made,))
    return Plan((item.at(item.axis + 1), LocalSizes(item)), (made,))


operation("TensorListFromTensor", facts=from_tensor_facts, control=from_tensor)


def _of_known_list(rule: ListRule) -> Control:
    """Turns a `ListRule` into a `control` rule.

    Lists of unknown origin are replicated.
    """

    def plan_list(node: Node, kinds: Sequence[Kind], planner: Planner) -> Plan:
        if isinstance(kinds[0], ListOf):
            return rule(node, kinds[0], kinds)
        return whole(node)

    return plan_list


@_of_known_list
def put_item(node: Node, made: ListOf, kinds: Sequence[Kind]) -> Plan:
    """Plans an insertion into a list, `(list, [index,] item)`.

    The item gets the kind of the list's elements, which its own kind can
    change.
    """
    kind = kinds[-1]
    if isinstance(kind, Partial):
        kind = REPLICATED
    made.put(kind, node.inputs[-1].shape)
    rest = (REPLICATED,) * (len(kinds) - 2)
    return Plan((made, *rest, made.kind or REPLICATED), (made,))


operation(
    "TensorListPushBack",
    "TensorListSetItem",
    facts=put_item_facts,
    control=put_item,
)


@_of_known_list
def get_item(node: Node, made: ListOf, kinds: Sequence[Kind]) -> Plan:
    """Plans a read of an item of a list, `(list, [index,] element_shape)`.

    The item has the kind of the list's elements.
    """
    kind = made.kind or REPLICATED
    shape = _element_shape(kind)
    rest = (REPLICATED,) * (len(kinds) - 2)
    gives: tuple[Kind, ...] = (
        (kind,) if node.type == "TensorListGetItem" else (made, kind)
    )
    return Plan((made, *rest, shape), gives)


operation(
    "TensorListGetItem", "TensorListPopBack", facts=item_facts, control=get_item
)


@_of_known_list
def stack(node: Node, made: ListOf, kinds: Sequence[Kind]) -> Plan:
    """Plans a stack of a list's elements, `(list, element_shape)`.

    It has a new first axis, and is otherwise sharded as the elements are.
    """
    kind = made.kind or REPLICATED
    gives = kind.at(kind.axis + 1) if isinstance(kind, Sharded) else kind
    return Plan((made, _element_shape(kind)), (gives,))


operation("TensorListStack", facts=stack_facts, control=stack)


@_of_known_list
def of_list(node: Node, made: ListOf, kinds: Sequence[Kind]) -> Plan:
    """Plans a list's length or resizing.

    A length is replicated; a resized list is the same list.
    """
    gives: Kind = made if node.type == "TensorListResize" else REPLICATED
    return Plan((made, *(REPLICATED,) * (len(kinds) - 1)), (gives,))


operation("TensorListResize", facts=same_list_facts, control=of_list)

operation("TensorListLength", control=of_list)


def of_lists(node: Node, kinds: Sequence[Kind]) -> Plan:
    """Plans operations on whole lists: each replica runs them on its lists.

    Lists that it takes get one kind. Any other operation that takes lists gets
    lists of replicated elements.
    """
    lists = [kind for kind in kinds if isinstance(kind, ListOf)]
    if Trait.OF_LISTS not in node.traits:
        for kind in lists:
            kind.must_be_whole()
        return Plan(tuple(kinds), (REPLICATED,) * len(node.outputs))
    for other in lists[1:]:
        lists[0].join(other)
    return Plan(tuple(kinds), (lists[0],))
