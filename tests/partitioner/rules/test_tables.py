"""Look-ups and updates of sharded tables, in the rows that a replica owns."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.rules.kinds import is_of_variable
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
        for _, elements, _ in one.sizes(strategy.replicas.mesh)
    ]
    assert sent == [("look_up", 4), ("look_up", 4 * 3), ("all_gather", 4 * 3)]


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


def moments(table, slot, ids, rows):
    """As Adam adds sparse gradients to its two moments."""
    for variable, values in ((table, rows), (slot, 0.5 * tf.square(rows))):
        total = tf.math.unsorted_segment_sum(values, ids, len(TABLE))
        variable.assign_add((total - variable) * 0.25)


@pytest.mark.parametrize(
    "ids", [[6, 0, 3, 3, 4, 0, 3], [1] * 7, [-1, 3, -8, 3, 0, 1, 6], []]
)
def test_sums_of_rows(strategy, ids):
    """To the last bit: owners add them in the order of the batch."""
    rows = np.random.default_rng(0).normal(size=(len(ids), 3))
    ids = np.array(ids, "int64")
    assert_same(moments, strategy, ids, rows.astype("float32"), number=2)


def sent_of(strategy, function, *specifications, number=1):
    made = tables(strategy, number)
    step = strategy.partitioned(lambda *given: function(*made, *given))
    lowered = step.program(specifications).written().lowered
    return lowered, sorted(
        (one.name, elements)
        for one in lowered.communication()
        for _, elements, _ in one.sizes(lowered.mesh)
    )


def test_summed_rows_travel_once(strategy):
    """And no replica has a sum of the size of the whole table."""
    ids = tf.TensorSpec([5], tf.int32)
    rows = tf.TensorSpec([5, 3], tf.float32)
    lowered, sent = sent_of(strategy, moments, ids, rows, number=2)
    assert sent == [("to_owners", 5), ("to_owners", 5 * 3)]
    made = [one for each in lowered.instructions for one in each.outputs]
    whole = [one for one in made if one.tensor.shape == TABLE.shape]
    assert whole and all(is_of_variable(one.kind) for one in whole)


def test_updates_travel_to_their_owners(strategy):
    ids = tf.TensorSpec([5], tf.int32)
    rows = tf.TensorSpec([5, 3], tf.float32)
    _, sent = sent_of(strategy, UPDATES["scatter_add"], ids, rows)
    assert sent == [("to_owners", 5), ("to_owners", 5 * 3)]


def test_exchanged_rows_are_left_out_of_xla_clusters(strategy):
    """Each step would compile them anew: their number varies."""
    made = tables(strategy, 2)

    def step(ids, rows):
        found = tf.gather(made[0], ids) * 2.0 + 1.0
        moments(*made, ids, rows * found)

    specifications = (
        tf.TensorSpec([6], tf.int32),
        tf.TensorSpec([6, 3], tf.float32),
    )
    step = strategy.partitioned(step, jit_compile=True)
    program = step.program(specifications)
    compiled = {
        operation
        for cluster in program.written().lowered.clusters
        for operation in cluster.operations
    }
    assert "Mul" in compiled
    assert compiled.isdisjoint(
        {"DynamicPartition", "DynamicStitch", "Square", "UnsortedSegmentSum"}
    )
