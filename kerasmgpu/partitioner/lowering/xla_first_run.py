"""The first run of a program: one device compiles, and the others load.

All devices would miss what XLA has compiled at the same time. TensorFlow keeps
compiled functions for other devices of the same type, so in a first run each
replica's cluster waits for the one before, which is the same function. Where
another process compiles a function, its clusters wait for an element of a queue:
that takes no thread of TensorFlow's, which may be few.
"""

import itertools
from collections.abc import Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.lowered import Cluster
from kerasmgpu.partitioner.step.definitions import set_attributes

_numbers = itertools.count()


def queue_name(function: str) -> str:
    """Returns a new name of a queue that clusters of a function wait for."""
    return f"{function}_{next(_numbers)}"


def release(queue: str, host: str) -> None:
    """Ends the wait for a queue, which may begin later."""
    with tf.device(host):
        tf.raw_ops.QueueEnqueueV2(handle=_queue(queue), components=[True])


def is_released(queue: str, host: str) -> bool:
    """Whether the wait for a queue has ended."""
    with tf.device(host):
        return bool(tf.raw_ops.QueueSizeV2(handle=_queue(queue)))


def _queue(name: str) -> tf.Tensor:
    return tf.raw_ops.FIFOQueueV2(component_types=[tf.bool], shared_name=name)


def in_turns(
    function: function_pb2.FunctionDef,
    clusters: Sequence[Cluster],
    queues: Mapping[str, str],
    host: str,
) -> function_pb2.FunctionDef | None:
    """Returns a function whose devices compile one after the other.

    Paths lead from a cluster to those of higher levels only, and to later parts
    on its device, so a cluster can wait for the first one of its level and
    function on the device before.

    Args:
        function: `FunctionDef` of all replicas.
        queues: Maps functions that another process compiles to the names of
            the queues that their clusters wait for.
        host: Name of the device of the queues.

    Returns:
        `FunctionDef` of another name, or `None` where no cluster waits.
    """
    before: dict[str, list[str]] = {}
    first: dict[tuple[int, str], dict[str, str]] = {}
    for cluster in clusters:
        calls = first.setdefault((cluster.level, cluster.function), {})
        calls.setdefault(cluster.device, cluster.call)
        devices = list(calls)
        waits = []
        if cluster.device != devices[0]:
            place = devices.index(cluster.device)
            waits.append(f"^{calls[devices[place - 1]]}")
        if cluster.function in queues:
            waits.append(f"^awaits_{queues[cluster.function]}")
        if waits:
            before[cluster.call] = waits
    if not before:
        return None
    made = function_pb2.FunctionDef()
    made.CopyFrom(function)
    made.signature.name += "_first"
    for node in made.node_def:
        node.input.extend(before.get(node.name, ()))
    for one in {cluster.function for cluster in clusters} & queues.keys():
        _add_wait(made, queues[one], host)
    return made


def _add_wait(
    function: function_pb2.FunctionDef, queue: str, host: str
) -> None:
    """Adds a node that ends when a queue has an element, which it takes."""
    types = {"component_types": [tf.bool]}
    handle = function.node_def.add(
        name=f"queue_{queue}", op="FIFOQueueV2", device=host
    )
    settings = {"capacity": -1, "shared_name": queue, "container": ""}
    set_attributes(handle, {**types, **settings})
    handle.attr["shapes"].list.SetInParent()
    taken = function.node_def.add(
        name=f"awaits_{queue}",
        op="QueueDequeueV2",
        input=[f"{handle.name}:handle:0"],
        device=host,
    )
    set_attributes(taken, {**types, "timeout_ms": -1})
