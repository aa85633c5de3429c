"""Workers take the first one's value of what they may round otherwise."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.mesh import Mesh
from tests.partitioner.passes.conftest import lines

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_product_that_a_variable_gets_is_broadcast(dumped, workers):
    kernel = tf.Variable(tf.ones([3, 1]))

    def step(x):
        kernel.assign(kernel @ tf.ones([1, 1]))
        kernel.assign_add(tf.sin(kernel))
        return tf.reduce_sum(x)

    replicas = CollectiveReplicas(Mesh.on([HOST], HOST, 0, workers))
    text = dumped(step, [None, 2], replicas=replicas)["agree"]
    expected = [
        "matmul:0 of each worker = MatMul(ReadVariableOp:0 R, ones:0 R)",
        "matmul:0 R = broadcast(matmul:0 of each worker)  3 * 4 bytes",
    ]
    assert lines(text, "of each worker") == expected * (workers - 1)
