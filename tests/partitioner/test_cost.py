"""Bytes that plans send, against numbers worked out by hand."""

import tensorflow as tf

from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import PARTIAL, REPLICATED, Rows, Sharded
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE

ROWS = sizes.Symbol("rows")


def node():
    """`[rows, 3]` in float32 and `[3, 5]` in float16 to `[rows, 5]`."""
    made = Node("product", "MatMul")
    made.inputs = [
        Tensor(made, 0, tf.float32, (sizes.of(ROWS), 3)),
        Tensor(made, 1, tf.float16, (3, 5)),
    ]
    made.outputs = [Tensor(made, 0, tf.float32, (sizes.of(ROWS), 5))]
    return made


def test_bytes_of_a_batch():
    (rows, kernel), model = node().inputs, CostModel({ROWS: 7})
    assert model.bytes_of(rows) == 7 * 3 * 4
    assert model.bytes_of(kernel) == 3 * 5 * 2
    assert CostModel().elements_of(rows) == ASSUMED_SIZE * 3


def test_gathers_count_once_and_sums_twice():
    product, model = node(), CostModel({ROWS: 7})
    sharded = Sharded(0, Rows(sizes.of(ROWS)))
    whole = (REPLICATED, REPLICATED)
    assert model.sent(product, (sharded, REPLICATED), whole, whole[:1]) == 84
    assert model.sent(product, (PARTIAL, REPLICATED), whole, whole[:1]) == 168
    assert model.sent(product, whole, whole, (PARTIAL,)) == 2 * 7 * 5 * 4


def test_what_is_there_or_free_costs_nothing():
    product, model = node(), CostModel({ROWS: 7})
    sharded = Sharded(0, Rows(sizes.of(ROWS)))
    given, whole = (sharded, REPLICATED), (REPLICATED, REPLICATED)
    assert model.sent(product, given, given, (sharded,)) == 0
    free = {product.inputs[0]}
    assert model.sent(product, given, whole, (sharded,), free) == 0
