"""Joins the function of all replicas with the one that takes a batch.

TensorFlow inlines calls, but only after several passes over both functions. And
to write a call, Python makes a placeholder for each copy of each variable: on 16
replicas that takes longer than to write the function itself.
"""

from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.lowering.content_names import renamed

_NODE = "feed/"
_ARGUMENT = "feed_"
_COLOCATED = b"loc:@"


def fed_function(
    feed: function_pb2.FunctionDef,
    function: function_pb2.FunctionDef,
    name: str,
) -> function_pb2.FunctionDef:
    """Returns a function that takes its batch from an iterator.

    Args:
        feed: Function that returns the tensors of a batch.
        function: Function whose first arguments are these tensors.

    Returns:
        `FunctionDef` whose arguments are those of `feed`, then those of
        `function` behind the batch; its outputs are those of `function`.
    """
    names = {one.name: _NODE + one.name for one in feed.node_def}
    for one in feed.signature.input_arg:
        names[one.name] = _ARGUMENT + one.name
    made = function_pb2.FunctionDef()
    made.CopyFrom(function)
    made.signature.name = name
    arguments = list(made.signature.input_arg)
    batch = {
        one.name: renamed(feed.ret[output.name], names)
        for one, output in zip(arguments, feed.signature.output_arg)
    }
    del made.signature.input_arg[:]
    for one in feed.signature.input_arg:
        made.signature.input_arg.add(name=names[one.name], type=one.type)
    made.signature.input_arg.extend(arguments[len(batch) :])
    for node in made.node_def:
        if not batch.keys().isdisjoint(node.input):
            taken = [
                batch.get(reference, reference) for reference in node.input
            ]
            del node.input[:]
            node.input.extend(taken)
    for output, reference in made.ret.items():
        made.ret[output] = batch.get(reference, reference)
    for node in feed.node_def:
        added = made.node_def.add()
        added.CopyFrom(node)
        added.name = names[node.name]
        del added.input[:]
        added.input.extend(renamed(one, names) for one in node.input)
        places = added.attr["_class"].list.s if "_class" in node.attr else []
        for number, place in enumerate(places):
            other = names.get(place.removeprefix(_COLOCATED).decode())
            if other is not None:
                places[number] = _COLOCATED + other.encode()
    for effect in feed.control_ret.values():
        made.signature.control_output.append(names[effect])
        made.control_ret[names[effect]] = names[effect]
    return made
