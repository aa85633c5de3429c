"""Functions are written as `FunctionDef`s, without TensorFlow's Python graphs.

A `FunctionDef` is a list of nodes by name. Writing one takes microseconds per
node, where a graph that is built operation by operation takes a millisecond.
"""

import itertools

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import (
    attr_value_pb2,
    function_pb2,
    node_def_pb2,
    op_def_pb2,
)

from kerasmgpu.partitioner import graph as graphs
from kerasmgpu.partitioner.records import Trait, record

_numbers = itertools.count()


class Writer:
    """Writes one function.

    References to tensors are strings: `"node:output:0"`, or the name of an
    input.

    Attributes:
        inputs: List of `(reference, dtype)`.
        last: Name of the node that was written last.
        on_host: Names of nodes that compute sizes and the like, for all.
        effects: Names of nodes that must run.
    """

    def __init__(self):
        self.inputs = []
        self.last = None
        self.on_host = set()
        self.effects = []
        self._nodes = {}
        self._known = {}
        self._peers = {}
        self._number = itertools.count()

    def add_input(self, name, dtype):
        """Adds an input to the function and returns the reference to it."""
        reference = f"{name}_{len(self.inputs)}"
        self.inputs.append((reference, dtype))
        return reference

    def device(self, reference):
        """The device of the node that makes a tensor; `None` for inputs."""
        node = self._nodes.get(reference.split(":", 1)[0])
        return None if node is None else node.device

    def copy(self, node, inputs, device, prefix, controls=(), attributes=None):
        """Writes a node of the graph that is partitioned.

        Args:
            node: `graph.Node`; attributes are taken from it.
            inputs: References, in the order of its inputs.
            device: Name of the device.
            prefix: What to put in front of the node's name.
            controls: Names of nodes that must have run before.
            attributes: `{name: value}` of attributes that are other than its.

        Returns:
            List of references to its outputs.
        """
        written = node_def_pb2.NodeDef()
        written.CopyFrom(node.definition)
        set_attributes(written, attributes or {})
        name = self._add(written, prefix + node.name, inputs, device, controls)
        return [f"{name}:{output}" for output in node.output_names]

    def op(self, type, inputs, attributes, device, name=None, controls=()):
        """Writes an operation; the same one with the same inputs only once.

        Args:
            type: Type of the operation.
            inputs: References.
            attributes: `{name: value}` of Python values, `tf.DType`s or
                `AttrValue`s.
            device: Name of the device.
            name: Its name, for people.
            controls: Names of nodes that must have run before.

        Returns:
            List of references to its outputs.
        """
        key = None
        if not controls and not graphs.op_definition(type).is_stateful:
            key = (type, *inputs, repr(attributes), device)
            if key in self._known:
                return self._known[key]
        node = graphs.new_node(type, name or type)
        set_attributes(node.definition, attributes)
        written = self._add(
            node.definition,
            name or f"partition/{type}",
            inputs,
            device,
            controls,
        )
        references = [f"{written}:{output}" for output in node.output_names]
        if key is not None:
            self._known[key] = references
        return references

    def barrier(self, reference, dtype, host, device, controls=()):
        """Writes a node that runs when a tensor is there; returns its name."""
        (there,) = self.op("Identity", [reference], {"T": dtype}, host, "batch")
        controls = [node_name(there), *controls]
        self.op("NoOp", [], {}, device, "start", controls)
        return self.last

    def together(self, names):
        """Notes nodes that wait for each other: all run, or none."""
        for name in names:
            self._peers[name] = names

    def constant(self, array, dtype, device):
        """Writes a constant and returns the reference to it."""
        dtype = tf.as_dtype(dtype)
        array = np.asarray(array, dtype.as_numpy_dtype)
        key = ("Const", array.tobytes(), array.shape, dtype, device)
        if key not in self._known:
            proto = tf.make_tensor_proto(array, dtype=dtype)
            (self._known[key],) = self.op(
                "Const", [], {"dtype": dtype, "value": proto}, device
            )
        return self._known[key]

    def function(self, name, outputs):
        """The function that was written.

        Args:
            name: Its name.
            outputs: List of `(reference, dtype)`.

        Returns:
            A `FunctionDef` without the nodes that nobody needs.
        """
        definition = function_pb2.FunctionDef()
        definition.signature.name = name
        definition.signature.is_stateful = True
        for reference, dtype in self.inputs:
            definition.signature.input_arg.append(argument(reference, dtype))
        for number, (reference, dtype) in enumerate(outputs):
            output = f"output_{number}"
            definition.signature.output_arg.append(argument(output, dtype))
            definition.ret[output] = reference
        needed = self.needed_nodes([reference for reference, _ in outputs])
        effects = dict.fromkeys(self.effects)
        for effect in self._by_device([n for n in effects if n in needed]):
            definition.signature.control_output.append(effect)
            definition.control_ret[effect] = effect
            needed[effect] = self._nodes[effect]
        definition.node_def.extend(needed.values())
        return definition

    def _by_device(self, names):
        """Nodes that have run when others have, one on each device.

        Who calls a function waits for each of them by itself, which takes a
        message between devices.
        """
        groups = {}
        for name in names:
            groups.setdefault(self._nodes[name].device, []).append(name)
        all_done = []
        for device, (done, *others) in groups.items():
            if others:
                self.op("NoOp", [], {}, device, "done", [done, *others])
                done = self.last
            all_done.append(done)
        return all_done

    def needed_nodes(self, outputs):
        """`{name: node}` of nodes that outputs and effects need, in order.

        Nobody waits for nodes that only look at a variable, and that nobody
        else needs.
        """
        effects = [
            name
            for name in self.effects
            if Trait.READ_ONLY not in record(self._nodes[name].op).traits
        ]
        needed = self._needed(outputs, effects)
        for name in needed:
            node = self._nodes[name]
            gone = [
                reference
                for reference in node.input
                if reference[0] == "^" and reference[1:] not in needed
            ]
            for reference in gone:
                node.input.remove(reference)
        return {
            name: node for name, node in self._nodes.items() if name in needed
        }

    def replace(self, nodes, gone, moved):
        """Leaves out nodes, in place of which others were written.

        Args:
            nodes: `{name: node}` as `needed_nodes` returned it.
            gone: Names of nodes to leave out.
            moved: `{reference: reference}`: where what they made is now.
        """
        for name in gone:
            del self._nodes[name]
        for node in self._nodes.values():
            now = [moved.get(reference, reference) for reference in node.input]
            if now != list(node.input):
                del node.input[:]
                node.input.extend(now)
        self.effects = list(
            dict.fromkeys(
                moved.get(f"^{name}", f"^{name}")[1:] for name in self.effects
            )
        )

    def dtype(self, reference):
        """Type of what a reference is to."""
        if ":" not in reference:
            return dict(self.inputs)[reference]
        name, output, index = reference.split(":")
        return graphs.output_type(self._nodes[name], output, int(index))

    def _add(self, node, name, inputs, device, controls):
        while name in self._nodes:
            name = f"{name}_{next(self._number)}"
        node.name, node.device = name, device
        node.input.extend(inputs)
        node.input.extend(f"^{control}" for control in controls)
        self._nodes[name] = node
        self.last = name
        return name

    def _needed(self, outputs, effects):
        needed = set()
        waiting = [node_name(reference) for reference in outputs] + effects
        while waiting:
            name = waiting.pop()
            if name in needed or name not in self._nodes:
                continue
            needed.add(name)
            waiting += self._peers.get(name, ())
            for reference in self._nodes[name].input:
                other = node_name(reference)
                if reference[0] != "^" or not self._only_looks(other):
                    waiting.append(other)
        return needed

    def _only_looks(self, name):
        """Whether nobody has to wait for a node that nobody needs."""
        return (
            name in self._nodes
            and Trait.READ_ONLY in record(self._nodes[name].op).traits
        )


def set_attributes(definition, attributes):
    """Sets attributes of a `NodeDef`, given as Python values by name."""
    for name, value in attributes.items():
        definition.attr[name].CopyFrom(attribute_value(value))


def attribute_value(value):
    """A Python value as an `AttrValue`."""
    if isinstance(value, attr_value_pb2.AttrValue):
        return value
    result = attr_value_pb2.AttrValue()
    if isinstance(value, tf.DType):
        result.type = value.as_datatype_enum
    elif isinstance(value, bool):
        result.b = value
    elif isinstance(value, int):
        result.i = value
    elif isinstance(value, float):
        result.f = value
    elif isinstance(value, str):
        result.s = value.encode()
    elif isinstance(value, list):
        result.list.SetInParent()
        for item in value:
            if isinstance(item, tf.DType):
                result.list.type.append(item.as_datatype_enum)
            elif isinstance(item, int):
                result.list.i.append(item)
            else:
                raise TypeError(f"No attribute: {value!r}")
    elif hasattr(value, "tensor_shape"):
        result.tensor.CopyFrom(value)
    else:
        raise TypeError(f"No attribute: {value!r}")
    return result


def function_attribute(name):
    """The name of a function as an `AttrValue`."""
    value = attr_value_pb2.AttrValue()
    value.func.name = name
    return value


def functions_attribute(names):
    """A list of names of functions as an `AttrValue`."""
    value = attr_value_pb2.AttrValue()
    for name in names:
        value.list.func.add().name = name
    return value


def branches(library, name, given, made, bodies):
    """Writes the two functions of an `If`; returns its attributes.

    Args:
        library: List that the functions are added to.
        name: What their names begin with.
        given: Types of what the functions take.
        made: Types of what they return.
        bodies: Functions `(writer, references)` that write one each and return
            references to its outputs.
    """
    functions = []
    for body in bodies:
        writer = Writer()
        inputs = [writer.add_input("given", dtype) for dtype in given]
        outputs = list(zip(body(writer, inputs), made))
        functions.append(f"{name}_{next(_numbers)}")
        library.append(writer.function(functions[-1], outputs))
    return {
        "Tcond": tf.bool,
        "Tin": given,
        "Tout": made,
        "then_branch": function_attribute(functions[0]),
        "else_branch": function_attribute(functions[1]),
        "_lower_using_switch_merge": True,
    }


def argument(name, dtype):
    """An input or output of a function's signature."""
    return op_def_pb2.OpDef.ArgDef(name=name, type=dtype.as_datatype_enum)


def node_name(reference):
    """Name of the node that a reference, or a control dependency, is to."""
    return reference.removeprefix("^").split(":", 1)[0]
