"""XLA compiles what a replica does without communication as one function."""

import tensorflow as tf

from tests.partitioner.passes.conftest import lines


def step(x):
    mean = tf.reduce_sum(tf.sin(x) * 2.0, 0)
    return tf.reduce_sum(tf.cos(x - mean) ** 2.0)


def clusters(text: str) -> list[str]:
    """Level, device and operations of each cluster."""
    return [
        f"{place.strip()}: {runs.strip()}"
        for place, runs in zip(lines(text, "level"), lines(text, "runs"))
    ]


def test_a_sum_cuts_the_operations_of_each_replica(dumped):
    text = dumped(step, [None, 2], jit_compile=True)["cluster_for_xla"]
    before = "runs Sin, Mul, Sum"
    after = "Sub, Cos, Pow, Sum"
    assert sorted(clusters(text)) == [
        f"level 0 on CPU:0: {before}",
        f"level 0 on CPU:1: {before}",
        f"level 2 on CPU:0: runs {after}",
        f"level 2 on CPU:1: runs {after}",
    ]


def test_replicas_call_one_function(dumped):
    text = dumped(step, [None, 2], jit_compile=True)["cluster_for_xla"]
    assert len(set(lines(text, "calls"))) == 2
    assert len(lines(text, "calls")) == 4


def test_values_that_clusters_take_and_return(dumped):
    text = dumped(step, [None, 2], jit_compile=True)["cluster_for_xla"]
    assert lines(text, "takes", "Placeholder:0")[0].strip() == (
        "takes Placeholder:0 S(0) (2*rows of input 0 * 4 bytes)"
    )
    assert lines(text, "returns")[0].strip() == (
        "returns Sum:0 P(sum) (2 * 4 bytes)"
    )


def test_an_operation_without_a_kernel_is_a_cut(dumped):
    def step(x):
        unique, _ = tf.unique(tf.cast(tf.sin(x) * 2.0, tf.int32))
        return tf.cos(tf.sin(tf.cast(unique, tf.float32)))

    text = dumped(step, [None], jit_compile=True)["cluster_for_xla"]
    *_, last = clusters(text)
    assert last.endswith("runs Cast, Sin, Cos")
    assert not lines(text, "runs", "Unique")


def test_no_replica_waits_for_the_start_of_a_gradient(dumped):
    """It is computed once, from sizes; all replicas have one cluster each."""

    def step(x, kernel):
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_mean(tf.nn.relu(x @ kernel) ** 2.0)
        return tape.gradient(loss, kernel)

    text = dumped(step, [None, 2], [2, 2], jit_compile=True)["cluster_for_xla"]
    assert [line.strip() for line in lines(text, "level")] == [
        "level 0 on CPU:0",
        "level 0 on CPU:1",
    ]


def test_loops_have_clusters_of_their_own(dumped):
    def step(x):
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, y: (i + 1, tf.sin(y) * 2.0 - tf.reduce_mean(y, 0)),
            [0, x],
        )[1]

    text = dumped(step, [None, 2], jit_compile=True)["cluster_for_xla"]
    _, body = text.split("clusters of while 1:")
    assert "level" in body


def test_what_only_moves_data_is_not_compiled(dumped):
    def step(x):
        made = tf.math.special.bessel_j0(tf.sin(x) * 2.0)  # Not in XLA.
        return tf.reverse(tf.transpose(made, [0, 2, 1]), [2])

    text = dumped(step, [None, 2, 3], jit_compile=True)["cluster_for_xla"]
    assert {one.split(": ")[1] for one in clusters(text)} == {"runs Sin, Mul"}


def test_no_clusters_without_xla(dumped):
    assert dumped(step, [None, 2])["cluster_for_xla"] == "clusters of f:\n"


def test_only_marked_operations_without_xla(dumped):
    marked = tf.function(lambda x: tf.sin(tf.cos(x)), jit_compile=True)
    text = dumped(lambda x: tf.exp(marked(x)), [None, 2])["cluster_for_xla"]
    assert [one.split(": ")[1] for one in clusters(text)] == [
        "runs Cos, Sin",
        "runs Cos, Sin",
    ]
