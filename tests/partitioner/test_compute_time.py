"""The seconds of a worker's step in which it doesn't wait for others."""

import math

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.lowering.compute_time import Clock, ComputeTime
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.step.places import HOST
from tests.devices import device_names
from tests.partitioner.dependencies import sources_of

PREFIX = "/job:localhost/replica:0/task:0/device:"


@pytest.fixture
def moments(monkeypatch):
    """Clocks return these seconds, each once, in the order of their reads."""
    seconds = []

    def time(self, after):
        given = self._build.captured(tf.constant(seconds.pop(0), tf.float64))
        return self._build.op("Identity", [given], HOST, "moment", after)[0]

    monkeypatch.setattr(Clock, "_time", time)
    return seconds


@pytest.mark.parametrize("shares_memory", [True, False])
def test_seconds_between_collectives(moments, shares_memory):
    """The first one runs from 13 to 20, the second one from 21.5 to 30."""

    def step(x):
        mean = tf.reduce_mean(x, 0)
        return tf.reduce_max(tf.abs(x - mean), 0)

    compute_time = ComputeTime()
    devices = [PREFIX + name for name in device_names(2)]
    mesh = Mesh.on(devices, f"{PREFIX}CPU:0", shares_memory=shares_memory)
    program = Partitioned(
        step, CollectiveReplicas(mesh), compute_time=compute_time
    ).program((tf.TensorSpec([4, 3]),))
    moments += [10.0, 13.0, 20.0, 21.5, 30.0]
    written = program.written()
    assert not moments
    assert math.isnan(compute_time.take())
    for _ in range(2):
        written([tf.reshape(tf.range(12.0), [4, 3])])
    assert compute_time.take() == 3.0 + 1.5
    assert math.isnan(compute_time.take())
    # What each moment waits for.
    function = written.library[-1]
    reads = [n.name for n in function.node_def if n.name.startswith("moment")]
    nodes = {node.name: node for node in function.node_def}
    waits = [[nodes[n].op for n in sources_of(nodes, name)] for name in reads]
    assert "NoOp" in waits[0]  # The first one, for the batch.
    counts = [one.count("CollectiveReduceV2") for one in waits]
    assert counts == [0, 0, 1, 1]
