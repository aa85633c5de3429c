"""Flips a bit or an element of what one device computes, holds or sends in a step."""

import copy

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.step.definitions import set_attributes

SITES = ("weight", "activation", "gradient", "sent", "received")
KINDS = ("bit", "element")
_BIT = 1 << 30
"""The highest of the exponent: it makes a zero 2, and a float below 2 huge."""


def flipped(written, site, kind, device="PU:1"):
    """A form of a written step in which a device fails, or `None` without the site."""
    if site not in SITES:
        return None
    main = copy.deepcopy(written.library[-1])
    main.signature.name += f"_{site}_{kind}"
    found = _output(main, site, device)
    if found is None:
        return None
    reference, readers, where = found
    made = _flip(main, kind, reference, where)
    for one in readers:
        for number, text in enumerate(one.input):
            if text == reference:
                one.input[number] = made
    return written.variant([main])


def _output(main, site, device):
    """A tensor of a site, the nodes that read it wrongly, and the device."""
    nodes = [one for one in main.node_def if one.device.endswith(device)]

    def first(op, *words):
        return next(
            (
                one
                for one in nodes
                if one.op == op
                and one.attr["T" if "T" in one.attr else "dtype"].type
                == tf.float32.as_datatype_enum
                and all(word in one.name for word in words)
            ),
            None,
        )

    if site == "weight":
        node, output = first("ReadVariableOp", "second"), "value"
    elif site == "activation":
        node, output = first("Tanh", "second"), "y"
    elif site == "gradient":
        node, output = first("TanhGrad"), "z"
    else:
        return _exchanged(main, nodes, site == "sent")
    if node is None:
        return None
    reference = f"{node.name}:{output}:0"
    return reference, _readers(main, reference), node.device


def _readers(main, reference):
    return [one for one in main.node_def if reference in one.input]


def _exchanged(main, nodes, is_sent):
    """A sum's operand that a device sends, or what it receives for a sum."""
    collectives = [
        one
        for one in nodes
        if one.op == "CollectiveReduceV2"
        and one.attr["T"].type == tf.float32.as_datatype_enum
    ]
    alone = [one for one in collectives if "third" in one.input[0]]
    edges = list(_edges(main, nodes, is_sent))
    if edges and not alone:
        reference, reader = edges[len(edges) // 2]
        return reference, [reader], nodes[0].device
    for one in (*alone, *collectives):
        if is_sent:
            return one.input[0], [one], one.device
        reference = f"{one.name}:data:0"
        readers = _readers(main, reference)
        slices = [reader for reader in readers if reader.op == "StridedSlice"]
        if slices:  # Of what it receives, the device uses its part.
            reference = f"{slices[0].name}:output:0"
            readers = _readers(main, reference)
        return reference, readers, one.device
    return None


def _edges(main, nodes, is_sent):
    """References to parts that are summed on another device, and the readers."""
    device_of = {one.name: one.device for one in main.node_def}
    own = nodes[0].device
    for reader in main.node_def:
        if reader.op == "AddN" and (reader.device == own) != is_sent:
            for text in reader.input:
                source = device_of.get(text.partition(":")[0], "")
                if text[0] != "^" and "PU:" in source:
                    if (source == own) == is_sent:
                        yield text, reader


def _flip(main, kind, reference, device):
    """Adds nodes that change an element of a tensor; returns the reference."""

    def add(name, op, inputs, **attributes):
        node = main.node_def.add(name=f"flip/{name}", op=op, device=device)
        node.input.extend(inputs)
        set_attributes(node, attributes)
        return node.name

    def constant(name, array):
        value = tf.make_tensor_proto(array)
        dtype = tf.as_dtype(array.dtype)
        made = add(name, "Const", [], dtype=dtype, value=value)
        return f"{made}:output:0"

    real, whole = tf.float32, tf.int32
    flat_shape = constant("flat_shape", np.array([-1], np.int32))
    flat = add("flat", "Reshape", [reference, flat_shape], T=real, Tshape=whole)
    shape = add("shape", "Shape", [reference], T=real, out_type=whole)
    size = add("size", "Shape", [f"{flat}:output:0"], T=real, out_type=whole)
    # In the middle: what is sent has losses and metrics at its ends.
    two = constant("two", np.array([2], np.int32))
    at = add("at", "FloorDiv", [f"{size}:output:0", two], T=whole)
    one = constant("one", np.array([1, 1], np.int32))
    where = add("where", "Reshape", [f"{at}:z:0", one], T=whole, Tshape=whole)
    given = [f"{where}:output:0"]
    if kind == "bit":
        bits = add("bits", "Bitcast", [f"{flat}:output:0"], T=real, type=whole)
        change = constant("bit", np.array([_BIT], np.int32))
        mask = add(
            "mask",
            "ScatterNd",
            [*given, change, f"{size}:output:0"],
            T=whole,
            Tindices=whole,
        )
        other = add(
            "xor",
            "BitwiseXor",
            [f"{bits}:output:0", f"{mask}:output:0"],
            T=whole,
        )
        made = add("floats", "Bitcast", [f"{other}:z:0"], T=whole, type=real)
        made = f"{made}:output:0"
    else:
        change = constant("element", np.array([3.0], np.float32))
        made = add(
            "update",
            "TensorScatterUpdate",
            [f"{flat}:output:0", *given, change],
            T=real,
            Tindices=whole,
        )
        made = f"{made}:output:0"
    again = add(
        "again",
        "Reshape",
        [made, f"{shape}:output:0"],
        T=real,
        Tshape=whole,
    )
    return f"{again}:output:0"
