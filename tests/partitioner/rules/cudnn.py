"""cuDNN's recurrent operations in TensorFlow's own, for where there is no GPU.

A stand-in computes what `CudnnRNNV3` and its gradient are documented to: one
layer, one direction, Keras's order of parameters. It refuses what cuDNN refuses
(no rows, a length of 0), and a gradient checks that what it is handed was kept
for its own rows.
"""

import contextlib
from unittest import mock

import tensorflow as tf

from kerasmgpu.partitioner.lowering.writing import Writer


@contextlib.contextmanager
def in_its_place():
    """Lets partitioned functions call stand-ins."""
    copy = Writer.copy

    def with_stand_in(
        writer,
        node,
        inputs,
        device="",
        prefix="",
        controls=(),
        *others,
        **named,
    ):
        if node.type not in _STAND_INS:
            before = device, prefix, controls, *others
            return copy(writer, node, inputs, *before, **named)
        if node not in _functions:
            _functions[node] = _STAND_INS[node.type](node)
        function = _functions[node]
        return writer.op(
            "StatefulPartitionedCall",
            inputs,
            device,
            prefix + node.name,
            controls,
            Tout=tuple(tensor.dtype for tensor in node.outputs),
            f=function.function_def.signature.name,
        )

    with mock.patch.object(Writer, "copy", with_stand_in):
        yield


_functions = {}
"""Node to its stand-in, which is in TensorFlow's library as long as it lives."""


def run(mode, time_major, x, h, c, parameters, lengths):
    """`(output, h, c)` of rows whose sequences have these lengths."""
    _require(tf.shape(lengths)[0] > 0, "no rows")
    _require(tf.reduce_min(lengths) > 0, "a length of 0")
    if not time_major:
        x, h, c = (
            tf.transpose(t, [1, 0, 2]) if t.shape.rank == 3 else t
            for t in (x, h, c)
        )
    gates = {"lstm": 4, "gru": 3}[mode]
    features, units = x.shape[2], h.shape[2]
    matrices = [(units, features)] * gates + [(units, units)] * gates
    sizes = [rows * columns for rows, columns in matrices] + [units] * 2 * gates
    parts = tf.split(parameters, sizes)
    weights = [tf.reshape(w, shape) for w, shape in zip(parts, matrices)]
    biases = parts[2 * gates :]
    step = {"lstm": _lstm, "gru": _gru}[mode]
    h, c, outputs = h[0], c[0] if mode == "lstm" else h[0], []
    for time in range(x.shape[0]):
        terms = [
            tf.matmul(source, weight, transpose_b=True) + bias
            for source, weight, bias in zip(
                [x[time]] * gates + [h] * gates, weights, biases
            )
        ]
        new_h, new_c = step(terms, h, c)
        is_on = (time < lengths)[:, None]
        h, c = tf.where(is_on, new_h, h), tf.where(is_on, new_c, c)
        outputs.append(tf.where(is_on, new_h, 0.0))
    output, h, c = tf.stack(outputs), h[None], c[None]
    if not time_major:
        output, h, c = (tf.transpose(t, [1, 0, 2]) for t in (output, h, c))
    return output, h, c if mode == "lstm" else tf.constant(0.0)


def _lstm(terms, h, c):
    i, f, g, o = (a + b for a, b in zip(terms[:4], terms[4:]))
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
    return tf.sigmoid(o) * tf.tanh(c), c


def _gru(terms, h, c):
    r, z = (tf.sigmoid(terms[n] + terms[3 + n]) for n in range(2))
    if not tf.sysconfig.get_build_info()["is_cuda_build"]:
        r, z = z, r  # Keras writes the gates in another order.
    new = z * h + (1 - z) * tf.tanh(terms[2] + r * terms[5])
    return new, c


def _require(condition, refused):
    message = f"cuDNN refuses {refused}."
    tf.debugging.Assert(condition, [message])


def _forward(node):
    mode, time_major = node.attr("rnn_mode"), node.attr("time_major")

    @tf.function(input_signature=_signature(node), autograph=False)
    def forward(*given):
        kept = tf.reshape(given[0], [-1])
        host = tf.cast(tf.shape(given[0])[:1], tf.int8)
        return *run(mode, time_major, *given), kept, host

    return forward.get_concrete_function()


def _backward(node):
    mode, time_major = node.attr("rnn_mode"), node.attr("time_major")

    @tf.function(input_signature=_signature(node), autograph=False)
    def backward(*given):
        sources, gradients, kept = given[:4], given[8:11], given[11]
        tf.debugging.assert_equal(kept, tf.reshape(given[0], [-1]))
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = run(mode, time_major, *given[:5])
        if mode == "gru":
            outputs, gradients = outputs[:2], gradients[:2]
        return tape.gradient(
            outputs, sources, gradients, unconnected_gradients="zero"
        )

    return backward.get_concrete_function()


def _signature(node):
    rows = 1 if node.attr("time_major") else 0
    return [
        tf.TensorSpec(
            tensor.static
            and [None if n == rows else s for n, s in enumerate(tensor.static)],
            tensor.dtype,
        )
        for tensor in node.inputs
    ]


_STAND_INS = {"CudnnRNNV3": _forward, "CudnnRNNBackpropV3": _backward}
