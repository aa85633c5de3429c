"""A function of replicas joined with the one that takes its batch."""

import tensorflow as tf
from tensorflow.python.eager import context

from kerasmgpu.partitioner.runtime.fed_function import fed_function


def test_the_batch_comes_from_the_iterator_and_the_rest_from_arguments():
    data = tf.data.Dataset.from_tensor_slices(([1.0, 2.0], [3, 4])).repeat(2)
    state, factor = tf.Variable(0.0), tf.constant(10.0)

    @tf.function
    def feed(iterator):
        return [2 * tensor for tensor in iterator.get_next()]

    @tf.function
    def function(x, y, handle, factor):
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=x)
        # Names that the other function has, too, and a tensor of the batch.
        return x * 2 * factor, y

    iterator = iter(data)
    takes = feed.get_concrete_function(iterator)
    float32, int32 = tf.TensorSpec([]), tf.TensorSpec([], tf.int32)
    runs = function.get_concrete_function(
        float32, int32, tf.TensorSpec([], tf.resource), float32
    )
    joined = fed_function(takes.function_def, runs.function_def, "joined")
    assert [one.name for one in joined.signature.output_arg] == [
        one.name for one in runs.function_def.signature.output_arg
    ]
    context.context().add_function_def(joined)
    inputs = [iterator._iterator_resource, state.handle, factor]
    found = [
        [
            float(one)
            for one in context.context().call_function(b"joined", inputs, 2)
        ]
        for _ in range(4)
    ]
    assert found == [[40, 6], [80, 8]] * 2
    assert state.numpy() == 12
