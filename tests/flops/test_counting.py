"""Operations of single nodes, of loops and of branches, by hand."""

import pytest
import tensorflow as tf

from kerasmgpu.flops.counting import count
from kerasmgpu.partitioner.planning import facts
from kerasmgpu.partitioner.step import reading


def counted(function, *shapes, dtype=tf.float32):
    """The `StepFlops` of a function of tensors of these shapes."""
    specs = [tf.TensorSpec(shape, dtype) for shape in shapes]
    traced = tf.function(function).get_concrete_function(*specs)
    graph = reading.read(traced.graph)
    for tensor in graph.inputs:
        tensor.complete()
    facts.infer(graph, [])
    return count(graph)


def einsum(equation):
    return lambda *tensors: tf.einsum(equation, *tensors)


@pytest.mark.parametrize(
    "function, shapes, expected",
    [
        (tf.matmul, [(2, 3), (3, 5)], 2 * 2 * 3 * 5),
        (tf.matmul, [(7, 2, 3), (7, 3, 5)], 7 * 2 * 2 * 3 * 5),
        # Batch axes broadcast.
        (tf.matmul, [(7, 1, 2, 3), (4, 3, 5)], 7 * 4 * 2 * 2 * 3 * 5),
        (einsum("bth,bsh->bts"), [(7, 2, 3), (7, 5, 3)], 7 * 2 * 2 * 5 * 3),
        (einsum("...h,hd->...d"), [(7, 2, 3), (3, 5)], 7 * 2 * 2 * 3 * 5),
        # An outer product, as in the gradient of a matrix product.
        (einsum("bi,bj->bij"), [(7, 2), (7, 3)], 2 * 7 * 2 * 3),
        # A label of one factor alone is summed first.
        (einsum("abc,cd->ad"), [(2, 9, 3), (3, 5)], 2 * 2 * 3 * 5),
        # Elementwise, sums and transposes are not counted.
        (einsum("bh,bh->bh"), [(2, 3), (2, 3)], 0),
        (einsum("bh->hb"), [(2, 3)], 0),
        (lambda x: tf.reduce_sum(tf.nn.softmax(x) * x), [(2, 3)], 0),
        (tf.linalg.cholesky, [(2, 6, 6)], 2 * 6**3 / 3),
        (tf.linalg.inv, [(6, 6)], 2 * 6**3),
        (tf.linalg.det, [(6, 6)], 2 * 6**3 / 3),
        (tf.linalg.solve, [(6, 6), (6, 2)], 2 * 6**3 / 3 + 2 * 36 * 2),
        (tf.linalg.triangular_solve, [(6, 6), (6, 2)], 36 * 2),
        (tf.signal.rfft, [(3, 16)], 3 * 2.5 * 16 * 4),
    ],
)
def test_operations(function, shapes, expected):
    flops = counted(function, *shapes)
    assert flops.total() == expected
    assert not flops.uncounted


def test_complex_products_are_four_real_ones():
    flops = counted(tf.matmul, (2, 3), (3, 5), dtype=tf.complex64)
    assert flops.by_dtype() == {"complex64": 4 * 2 * 2 * 3 * 5}
    assert counted(tf.signal.fft, (3, 16), dtype=tf.complex64).total() == (
        3 * 5 * 16 * 4
    )


def test_sparse_products_are_by_entries():
    def multiply(indices, values, dense):
        sparse = tf.SparseTensor(tf.cast(indices, tf.int64), values, [9, 4])
        return tf.sparse.sparse_dense_matmul(sparse, dense)

    flops = counted(multiply, (6, 2), (6,), (4, 5))
    assert flops.total() == 2 * 6 * 5


@pytest.mark.parametrize(
    "mode, gates, direction, directions",
    [("lstm", 4, "unidirectional", 1), ("gru", 3, "bidirectional", 2)],
)
def test_recurrent_layers_of_cudnn(mode, gates, direction, directions):
    time, rows, features, units, layers = 7, 3, 5, 6, 2

    def run(x, h, parameters):
        made = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=h,
            input_c=h,
            params=parameters,
            sequence_lengths=[time] * rows,
            rnn_mode=mode,
            direction=direction,
        )
        return made.output

    state = (layers * directions, rows, units)
    flops = counted(run, (time, rows, features), state, (1000,))
    first = features + units
    second = directions * units + units
    per_step = directions * gates * units * (first + second)
    assert flops.total() == 2 * time * rows * per_step


def test_what_has_no_rule_is_named():
    def function(x):
        return tf.linalg.svd(x, compute_uv=False), tf.linalg.eigh(x)[0]

    flops = counted(function, (4, 4))
    assert flops.total() == 0
    assert flops.uncounted == {"Svd": 1, "SelfAdjointEigV2": 1}


def test_products_of_integers_are_named():
    flops = counted(tf.matmul, (2, 3), (3, 5), dtype=tf.int32)
    assert (flops.total(), flops.uncounted) == (0, {"MatMul": 1})


def test_factorisations_of_unknown_size_are_named():
    flops = counted(tf.linalg.cholesky, (None, None))
    assert flops.uncounted == {"Cholesky": 1}


def test_loops_count_their_rounds():
    def function(x):
        for _ in tf.range(2, 7):
            for _ in tf.range(3):
                x = x @ x
        return x

    assert counted(function, (4, 4)).total() == 15 * 2 * 4**3


def test_a_lists_length_bounds_the_rounds():
    def function(x):
        kept, i = tf.TensorArray(tf.float32, 6), 0
        while tf.reduce_sum(x) < 9.0:
            x = x @ x
            kept, i = kept.write(i, x), i + 1
        return kept.stack()

    assert counted(function, (4, 4)).total() == 6 * 2 * 4**3


def test_unknown_rounds_are_a_name_in_the_formula():
    def function(x):
        y = x @ x
        while tf.reduce_sum(y) < 9.0:
            y = y @ x
        return y

    flops = counted(function, (4, 4))
    assert flops.total() is None
    (name,) = flops.unknown()
    assert name == "rounds of while"
    assert flops.formula() == f"128 · {name} + 128"


def test_of_a_branch_the_larger_body_counts():
    def function(x):
        if tf.reduce_sum(x) > 0.0:
            return x @ x
        return tf.sin(x)

    assert counted(function, (4, 4)).total() == 2 * 4**3
