"""Which data sets must be read again to find the place in them."""

import pytest
import tensorflow as tf

from kerasmgpu.engine import pipelines

NUMBERS = tf.data.Dataset.range(12)


def shuffled():
    return NUMBERS.shuffle(4, seed=1)


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: shuffled().map(lambda x: x + 1, 2).batch(2).prefetch(1),
        lambda: tf.data.Dataset.zip(shuffled(), NUMBERS).take(3).skip(1),
        lambda: NUMBERS.repeat(2).filter(lambda x: x > 3).padded_batch(2),
        lambda: NUMBERS.map(lambda x: tf.random.uniform([])),
        lambda: tf.data.TFRecordDataset(["a", "b"]),
        lambda: NUMBERS.interleave(lambda x: tf.data.Dataset.range(x)),
    ],
)
def test_making_iterators_suffices(dataset):
    assert pipelines.making_iterators_suffices(dataset())


@pytest.mark.parametrize(
    "dataset",
    [
        lambda: shuffled().repeat(2),
        lambda: shuffled().concatenate(NUMBERS),
        lambda: shuffled().cache(),
        lambda: NUMBERS.interleave(
            lambda x: tf.data.Dataset.range(x).shuffle(2)
        ),
        lambda: NUMBERS.map(lambda x: tf.py_function(abs, [x], tf.int64)),
        lambda: tf.data.Dataset.from_generator(
            lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32)
        ),
        lambda: tf.data.Dataset.random(seed=1).take(3),
    ],
)
def test_all_must_be_read(dataset):
    assert not pipelines.making_iterators_suffices(dataset())


def test_a_function_that_draws_from_a_generator_must_be_run():
    generator = tf.random.Generator.from_seed(1)
    dataset = NUMBERS.map(lambda x: generator.uniform([]))
    assert not pipelines.making_iterators_suffices(dataset)


@pytest.mark.parametrize(
    "dataset, rows",
    [
        (lambda: NUMBERS, None),
        (lambda: NUMBERS.batch(4), 4),
        (lambda: NUMBERS.padded_batch(4).map(abs).repeat().prefetch(1), 4),
        (lambda: NUMBERS.batch(4, num_parallel_calls=2).unbatch().batch(2), 2),
        (lambda: tf.data.Dataset.zip(NUMBERS, NUMBERS), None),
        (lambda: [1, 2], None),
    ],
)
def test_the_last_batch_says_how_many_rows(dataset, rows):
    assert pipelines.batch_size(dataset()) == rows


def test_names_of_tensorflow_that_are_relied_on():
    dataset = NUMBERS.map(lambda x: x + 1)
    (source,) = dataset._inputs()
    assert type(source).__name__ == "_RangeDataset"
    (function,) = dataset._functions()
    assert "AddV2" in {
        node.op for node in function.function.graph.as_graph_def().node
    }
