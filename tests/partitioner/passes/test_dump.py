"""The program after each pass is written to a folder."""

import tensorflow as tf

from kerasmgpu.partitioner.passes import dump


def test_a_file_for_each_pass_in_order(dumped):
    names = list(dumped(tf.reduce_sum, [None, 2]))
    assert names == [
        "read",
        "simplify",
        "infer",
        "plan",
        "insert_reshards",
        "lower_reshards",
        "scatter_early",
        "group_sums",
        "place_regions",
        "agree",
        "place_operations",
        "guard_empty_shares",
        "order_gathers",
        "localise_sizes",
        "cluster_for_xla",
        "write",
    ]


def test_nothing_is_written_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(dump.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    dump.Dump("f")("read", lambda: "text")
    assert list(tmp_path.iterdir()) == []
