"""Lists of tensors, as loops have them."""

import tensorflow as tf

from kerasmgpu.partitioner import sizes
from kerasmgpu.partitioner.elements import common
from kerasmgpu.partitioner.kinds import (
    REPLICATED,
    ListOf,
    LocalSizes,
    Partial,
    Sharded,
)
from kerasmgpu.partitioner.records import Trait, operation, record
from kerasmgpu.partitioner.rules.table import Plan, whole


def empty_list_facts(node, inference):
    """Nothing was put into a new list yet."""
    node.outputs[0].element = inference.elements(node)


def reserved_list_facts(node, inference):
    """What isn't set is zeros of the shape that the list is made with."""
    elements = inference.elements(node)
    value = node.inputs[0].value
    if isinstance(value, tuple) and not {None, -1}.intersection(value):
        elements.put(node, inference.lasting(value))
    node.outputs[0].element = elements


def from_tensor_facts(node, inference):
    """Elements are what the tensor has behind its first axis."""
    elements = inference.elements(node)
    shape = node.inputs[0].shape
    item = None if shape is None else shape[1:]
    elements.put(node, inference.lasting(item))
    node.outputs[0].element = elements


def put_item_facts(node, inference):
    """The same list, with the last input among its elements."""
    elements = node.inputs[0].element
    if elements is not None:
        item = node.inputs[-1]
        elements.put(
            node, inference.lasting(item.shape), inference.lasting(item.value)
        )
    node.outputs[0].element = elements


def same_list_facts(node, inference):
    """The list that comes in."""
    node.outputs[0].element = node.inputs[0].element


def zeros_like_facts(node, inference):
    """A list of zeros of the same shapes, to which others are added."""
    like = node.inputs[0].element
    if node.outputs[0].dtype == tf.variant and like is not None:
        elements = inference.elements(node)
        elements.put(node, like.shape)
        node.outputs[0].element = elements


def of_lists_facts(node, inference):
    """What is made of several lists is as all of them are."""
    if node.outputs[0].dtype == tf.variant:
        lists = [t for t in node.inputs if t.dtype == tf.variant]
        element = lists[0].element
        for other in lists[1:]:
            element = common(element, other.element)
        node.outputs[0].element = element


operation("TensorListConcatLists", facts=of_lists_facts)


def item_facts(node, inference):
    """What comes out is as all elements of the list are."""
    elements = node.inputs[0].element
    if node.type == "TensorListPopBack":
        node.outputs[0].element = elements
    if elements is not None and elements.shape is not None:
        # Sizes that nobody knows are left to TensorFlow, or get symbols.
        item = node.outputs[-1]
        item.shape = sizes.filled_in(elements.shape, item.static)
        item.value = elements.value


def stack_facts(node, inference):
    """The number of elements, then the axes of one."""
    elements, out = node.inputs[0].element, node.outputs[0]
    if elements is None or elements.shape is None:
        return
    count = out.shape[0] if out.shape else node.attr("num_elements")
    if count is None or (isinstance(count, int) and count < 0):
        count = None
    out.shape = sizes.filled_in((count, *elements.shape), out.static)


def element_shape_facts(node, inference):
    """Sizes that TensorFlow would only know as -1 may be told."""
    elements = node.inputs[0].element
    if elements is None or elements.shape is None:
        return
    if None not in elements.shape:
        node.outputs[0].value = elements.shape


operation("TensorListElementShape", facts=element_shape_facts)


def new_list(node, kinds, plan):
    """Each replica has a list for its parts."""
    made = plan.lists.setdefault(node, ListOf())
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


def _element_shape(kind):
    """How the input `element_shape` is wanted, for elements of a kind."""
    return LocalSizes(kind) if isinstance(kind, Sharded) else REPLICATED


def kept_list(node, kinds, plan):
    """A list that was kept has whole elements; see `of_lists`."""
    gives = [REPLICATED] * len(node.outputs)
    for number, tensor in enumerate(node.outputs):
        if tensor.dtype == tf.variant:
            gives[number] = plan.lists.setdefault(tensor, ListOf())
            gives[number].must_be_whole()
    return Plan(tuple(kinds), tuple(gives))


operation("OptionalGetValue", control=kept_list)


def from_tensor(node, kinds, plan):
    """`(tensor, element_shape)`: the first axis is cut up, so it is whole.

    What else is put into the list, or into one that must be alike, may have
    rows: then a whole tensor is cut up by rows.
    """
    kind = kinds[0]
    made = plan.lists.setdefault(node, ListOf())
    has_rows = isinstance(kind, Sharded) and kind.axis > 0
    shape = node.inputs[0].shape and node.inputs[0].shape[1:]
    made.put(kind.at(kind.axis - 1) if has_rows else REPLICATED, shape)
    item = made.kind
    if not isinstance(item, Sharded):
        return Plan((REPLICATED, REPLICATED), (made,))
    return Plan((item.at(item.axis + 1), LocalSizes(item)), (made,))


operation("TensorListFromTensor", facts=from_tensor_facts, control=from_tensor)


def _of_known_list(rule):
    """The rule, or one for a list that is whole for all that is known of it."""

    def plan_list(node, kinds, plan):
        if isinstance(kinds[0], ListOf):
            return rule(node, kinds, plan)
        return whole(node)

    return plan_list


@_of_known_list
def put_item(node, kinds, plan):
    """`(list, [index,] item)`."""
    made, kind = kinds[0], kinds[-1]
    if isinstance(kind, Partial):
        kind = REPLICATED
    made.put(kind, node.inputs[-1].shape)
    wanted = made.kind
    rest = (REPLICATED,) * (len(kinds) - 2)
    return Plan((made, *rest, wanted), (made,))


operation(
    "TensorListPushBack",
    "TensorListSetItem",
    facts=put_item_facts,
    control=put_item,
)


@_of_known_list
def get_item(node, kinds, plan):
    """`(list, [index,] element_shape)`."""
    made = kinds[0]
    kind = made.kind or REPLICATED
    shape = _element_shape(kind)
    rest = (REPLICATED,) * (len(kinds) - 2)
    gives = (kind,) if node.type == "TensorListGetItem" else (made, kind)
    return Plan((made, *rest, shape), gives)


operation(
    "TensorListGetItem", "TensorListPopBack", facts=item_facts, control=get_item
)


@_of_known_list
def stack(node, kinds, plan):
    """`(list, element_shape)`: a new first axis."""
    made = kinds[0]
    kind = made.kind or REPLICATED
    gives = kind.at(kind.axis + 1) if isinstance(kind, Sharded) else kind
    return Plan((made, _element_shape(kind)), (gives,))


operation("TensorListStack", facts=stack_facts, control=stack)


@_of_known_list
def of_list(node, kinds, plan):
    """A length is replicated; a list of another length is the same list."""
    made = kinds[0]
    gives = made if node.type == "TensorListResize" else REPLICATED
    return Plan((made, *(REPLICATED,) * (len(kinds) - 1)), (gives,))


operation("TensorListResize", facts=same_list_facts, control=of_list)

operation("TensorListLength", control=of_list)


def of_lists(node, kinds):
    """What is done to lists as wholes is done to each replica's.

    Other operations get lists of whole elements.
    """
    lists = [kind for kind in kinds if isinstance(kind, ListOf)]
    if Trait.OF_LISTS not in record(node.type).traits:
        for kind in lists:
            kind.must_be_whole()
        return Plan(tuple(kinds), (REPLICATED,) * len(node.outputs))
    for other in lists[1:]:
        lists[0].join(other)
    return Plan(tuple(kinds), (lists[0],))
