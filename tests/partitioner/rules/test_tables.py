"""Look-ups and updates of sharded tables, in the rows that a replica owns."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.partitioner.sharded_tables import TABLE, assert_same, tables
from tests.strategies.sharded import mirrored


@pytest.fixture(scope="module", params=[2, 3])
def strategy(request):
    """A strategy whose tables are sharded by rows: 4 + 3, or 3 + 2 + 2."""
    return mirrored(request.param, lambda variable: 0)


@pytest.fixture(scope="module")
def columns():
    """A strategy whose tables are sharded by columns."""
    return mirrored(3, lambda variable: 1)


LOOK_UPS = {
    "gather": tf.gather,
    "embedding_lookup": tf.nn.embedding_lookup,
    "sparse_read": lambda table, ids: table.sparse_read(ids),
    "gather of axis 1": lambda table, ids: tf.gather(table, ids % 3, axis=1),
    "gather_nd": lambda table, ids: table.gather_nd(ids[..., None]),
}


@pytest.mark.parametrize("name", LOOK_UPS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_look_ups(strategy, name, dtype):
    """Of all rows, and of one row several times."""
    ids = np.array([[0, 6], [3, 3], [2, 4], [5, 1], [3, 6]], dtype)
    outputs, _ = assert_same(LOOK_UPS[name], strategy, ids)
    assert outputs[0].any()


def test_look_ups_in_columns(columns):
    ids = np.array([[0, 6], [3, 3], [2, 4]])
    assert_same(tf.gather, columns, ids)


def test_only_found_rows_travel(strategy):
    """The table stays where it is."""
    (table,) = tables(strategy)
    step = strategy.partitioned(lambda ids: tf.gather(table, ids))
    program = step.program((tf.TensorSpec([4], tf.int32),))
    sent = [
        (one.name, elements)
        for one in program.written().lowered.communication()
        for _, elements, _ in one.sizes()
    ]
    assert sent == [("all_reduce", 4 * 3)]


def test_ids_of_one_replica(strategy):
    """The others find none."""
    assert_same(tf.gather, strategy, np.array([1, 0, 1, 1]))


def test_no_ids(strategy):
    assert_same(tf.gather, strategy, np.zeros([0], "int32"))


@pytest.mark.parametrize("bad", [7, 100, -1, -8])
@pytest.mark.parametrize("name", ["gather", "embedding_lookup", "sparse_read"])
def test_ids_out_of_range_raise_as_on_one_device(strategy, bad, name):
    ids = np.array([1, bad, 3])
    with pytest.raises(tf.errors.InvalidArgumentError) as expected:
        tf.function(LOOK_UPS[name])(*tables(), tf.constant(ids))
    assert f"= {bad} is not in" in str(expected.value)
    (table,) = tables(strategy)
    with strategy.scope():
        step = kerasmgpu.partition(lambda ids: LOOK_UPS[name](table, ids))
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        step(tf.constant(ids))


def _method(name):
    def update(table, ids, rows):
        getattr(table, name)(tf.IndexedSlices(rows, ids))

    return update


UPDATES = {
    name: _method(name)
    for name in (
        "scatter_add",
        "scatter_div",
        "scatter_max",
        "scatter_min",
        "scatter_mul",
        "scatter_sub",
        "scatter_update",
    )
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates(strategy, name):
    """Rows of which one is updated several times, in their order."""
    ids = np.array([6, 0, 3, 3, 4, 0, 3])
    rows = np.float32([[2, 4, 8]]) ** np.float32(np.arange(1, 8))[:, None]
    _, (table,) = assert_same(UPDATES[name], strategy, ids, rows)
    assert (table[[0, 3, 4, 6]] != TABLE[[0, 3, 4, 6]]).any()
    np.testing.assert_array_equal(table[[1, 2, 5]], TABLE[[1, 2, 5]])


@pytest.mark.parametrize("name", ["scatter_add", "scatter_update"])
def test_updates_of_columns(columns, name):
    ids = np.array([6, 0, 3, 3, 4, 0, 3])
    rows = np.arange(21, dtype="float32").reshape(7, 3)
    assert_same(UPDATES[name], columns, ids, rows)


def test_updates_of_blocks_of_rows(strategy, columns):
    """Ids of two axes."""
    ids = np.array([[6, 0], [3, 2], [1, 6]])
    rows = np.arange(18, dtype="float32").reshape(3, 2, 3)
    for one in (strategy, columns):
        assert_same(UPDATES["scatter_add"], one, ids, rows)


@pytest.mark.parametrize("bad", [7, -1])
def test_updates_out_of_range(strategy, bad):
    """They raise on a CPU, on one device and on the replica at that end."""
    (table,) = tables(strategy)
    with strategy.scope():
        step = kerasmgpu.partition(
            lambda ids, rows: UPDATES["scatter_add"](table, ids, rows)
        )
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.constant([1, bad]), tf.ones([2, 3]))


def test_an_optimizers_kernel_of_sparse_gradients(strategy):
    def step(table, slot, ids, rows):
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle,
            accum=slot.handle,
            lr=0.5,
            epsilon=0.1,
            grad=rows,
            indices=ids,
        )

    ids = np.array([6, 0, 3, 4])
    rows = np.arange(12, dtype="float32").reshape(4, 3)
    assert_same(step, strategy, ids, rows, number=2)


def test_gradients_of_look_ups(strategy):
    """Rows, with duplicates, of the batch's ids; their sum is exact here."""

    def step(table, ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, ids) ** 2)
        gradient = tape.gradient(loss, table)
        table.scatter_sub(
            tf.IndexedSlices(0.5 * gradient.values, gradient.indices)
        )
        return loss

    assert_same(step, strategy, np.array([6, 0, 3, 3, 5, 6, 6]))
