"""Time-outs of TensorFlow's engine, and what one of them is told as."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from kerasmgpu.engine import extended
from kerasmgpu.engine.extended import LocalExtended, WorkerExtended
from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.mesh import Mesh

RESOLVER = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({"worker": ["a:1", "b:2", "c:3"]}),
    task_type="worker",
    task_id=0,
)


def test_ours_is_noticed_before_tensorflows():
    engine = WorkerExtended.__new__(WorkerExtended)
    engine._communication_options = (
        tf.distribute.experimental.CommunicationOptions()
    )
    engine._cluster_spec = None
    engine._start_seconds, engine._silence_seconds = 300.0, 0.0001
    config = engine._update_config_proto(tf.compat.v1.ConfigProto())
    coordination = config.experimental.coordination_config
    assert coordination.heartbeat_timeout_in_ms == 1  # 0 is TensorFlow's own.
    assert coordination.cluster_register_timeout_in_ms == 300_000
    engine._silence_seconds = 30.0
    config = engine._update_config_proto(tf.compat.v1.ConfigProto())
    coordination = config.experimental.coordination_config
    # Half of it is the time-out of an answer.
    assert coordination.heartbeat_timeout_in_ms / 2 > 30_000 * 7 / 6


@pytest.mark.parametrize(
    "message, told",
    [
        (
            "Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0.\n"
            "# of tasks that reached the barrier: 1/3.\n"
            "The first task at the barrier: /job:worker/replica:0/task:0. Some "
            "timed out task names:\n/job:worker/replica:0/task:1\n"
            "/job:worker/replica:0/task:2\n\nRPC: /tensorflow.Coordination…",
            r"within 20 s on worker 1 \(b:2\), worker 2 \(c:3\)\. See",
        ),
        ("Deadline Exceeded", r"within 20 s on the job's first worker\. See"),
    ],
)
def test_a_worker_whose_tensorflow_does_not_start_is_named(
    message, told, monkeypatch
):
    def late(*_, **__):
        raise tf.errors.DeadlineExceededError(None, None, message)

    base = extended.CollectiveAllReduceExtended
    monkeypatch.setattr(base, "__init__", late)
    options = tf.distribute.experimental.CommunicationOptions()
    with pytest.raises(extended.InputError, match=told):
        WorkerExtended(SimpleNamespace(), RESOLVER, options, list, 20.0, 5.0)


@pytest.mark.parametrize(
    "implementation, axes, count",
    [("RING", (2, 2), 1), ("RING", (), 0), ("NCCL", (2, 2), 0)],
)
def test_meshes_on_logical_gpus_are_warned_of(
    monkeypatch, implementation, axes, count
):
    said = []
    monkeypatch.setattr(
        extended.logging, "log_first_n", lambda _, text, n: said.append(text)
    )
    devices = [f"/device:GPU:{n}" for n in range(4)]
    operations = extended.CollectiveAllReduce.__new__(
        extended.CollectiveAllReduce
    )
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation[
            implementation
        ]
    )
    engine = SimpleNamespace(
        _cross_device_ops=operations, _communication_options=options
    )
    mesh = Mesh.on(devices, "/device:CPU:0", axes=axes)
    made = LocalExtended.replicas(engine, mesh, None, None)
    assert isinstance(made, CollectiveReplicas)
    assert said == [extended._NOT_TRUSTED] * count
