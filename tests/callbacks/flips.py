"""Flips a bit or an element of what one device computes, holds or sends in a step."""

import copy

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.step.definitions import set_attributes

SITES = ("weight", "activation", "gradient", "sent", "received")
KINDS = ("bit", "element")
_BIT = 1 << 26
"""Of the exponent: a float32 is 2**8 times as large, or as small."""


def flipped(written, site, kind, device="PU:1"):
    """A form of a written step in which a device fails, or `None` without the site."""
    main = copy.deepcopy(written.library[-1])
    main.signature.name += f"_{site}_{kind}"
    found = _output(main, site, device)
    if found is None:
        return None
    reference, node, index = found
    made = _flip(main, kind, reference, node.device)
    for one in main.node_def:
        if one.name.startswith("flip/"):
            continue
        for number, text in enumerate(one.input):
            is_other = one.name == node.name and number != index
            if text == reference and not (site == "sent" and is_other):
                if site != "sent" or one.name == node.name:
                    one.input[number] = made
    return written.variant([main])


def _output(main, site, device):
    """A tensor of a site on a device, its reader or writer, and that input."""
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
        node, output = _of_gradients(nodes), "data"
    if node is None:
        return None
    if site == "sent":
        return node.input[0], node, 0
    return f"{node.name}:{output}:0", node, None


def _of_gradients(nodes):
    """The last collective of floats: that of gradients, behind those of the loss."""
    found = [
        one
        for one in nodes
        if one.op.startswith("CollectiveReduce")
        and one.attr["T"].type == tf.float32.as_datatype_enum
    ]
    return found[-1] if found else None


def _flip(main, kind, reference, device):
    """Adds nodes that change the largest element of a tensor; their reference."""

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
    sizes = add("abs", "Abs", [f"{flat}:output:0"], T=real)
    axis = constant("axis", np.array(0, np.int32))
    at = add(
        "at",
        "ArgMax",
        [f"{sizes}:y:0", axis],
        T=real,
        Tidx=whole,
        output_type=whole,
    )
    one = constant("one", np.array([1, 1], np.int32))
    where = add(
        "where", "Reshape", [f"{at}:output:0", one], T=whole, Tshape=whole
    )
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
