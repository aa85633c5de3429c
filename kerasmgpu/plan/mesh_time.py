"""Predicts the step time on a mesh of `keras.distribution`.

Plain arithmetic on the standard library, with the stages of `step_time`:

    step = max(device, host, input)
    device = compute + exposed sums along the rows + all sums along other axes

The mesh shares one device's batch. What isn't counted in FLOPs (element-wise
operations, updates) is taken to be divided as the products are.
"""

import dataclasses
import math
from collections.abc import Sequence

from kerasmgpu.plan.step_time import (
    BACKWARD_SHARE,
    Link,
    Machines,
    Step,
    all_reduce_seconds,
)
from kerasmgpu.replica_arithmetic import block_of


@dataclasses.dataclass(frozen=True)
class MeshAxis:
    """An axis of a mesh, and what a device sends along it in a step.

    Attributes:
        name: String.
        size: Integer, at least 2.
        sent_bytes: Integer, bytes that a device sends along it.
        rings: Float, all-reduces in a step; a collective that sends half of
            an all-reduce, such as an all-gather, is half a one.
        divides_rows: Whether the batch is divided along it.
    """

    name: str
    size: int
    sent_bytes: int
    rings: float
    divides_rows: bool


@dataclasses.dataclass(frozen=True)
class MeshPrediction:
    """The predicted step on a mesh: seconds, speed-up, bottleneck.

    `axis_seconds` are those of the collectives along each axis, of which
    `exposed_seconds` is the part, of all axes, not hidden by compute. `limit` is
    `"compute"`, `"host"`, `"input"` or `"along NAME"`. `speed_up` is relative to
    one device with the same batch.
    """

    mesh: dict[str, int]
    global_batch_size: int
    compute_seconds: float
    host_seconds: float
    input_seconds: float
    axis_seconds: dict[str, float]
    exposed_seconds: float
    step_seconds: float
    limit: str
    speed_up: float


def axis_seconds(axes: Sequence[MeshAxis], machines: Machines) -> list[float]:
    """Returns the seconds of the collectives along each axis.

    Each machine has a block of the mesh; see `replica_arithmetic.block_of`. Its
    devices that communicate along the same axis with other machines share its
    link to them.

    Args:
        axes: Sequence of `MeshAxis`.

    Example:

    >>> axis = MeshAxis("model", 4, sent_bytes=6e9, rings=1, divides_rows=False)
    >>> axis_seconds([axis], Machines(4, Link(1e9, latency_seconds=0.5)))
    [9.0]
    """
    sizes = [axis.size for axis in axes]
    own = min(machines.replicas_per_machine, math.prod(sizes))
    made = []
    for axis, inside in zip(axes, block_of(sizes, own)):
        # As one all-reduce of these bytes, with the messages of all.
        num_bytes = axis.sent_bytes * axis.size / (2 * (axis.size - 1))
        between = machines.between
        if between is not None:
            between = _times(between, own // inside, axis.rings)
        along = Machines(
            inside,
            _times(machines.inside, 1, axis.rings),
            between,
            machines.algorithm,
        )
        made.append(all_reduce_seconds(num_bytes, axis.size, along))
    return made


def _times(link: Link, sharing: int, rings: float) -> Link:
    """Returns a device's part of a link, with the latency of several rings."""
    return Link(link.bytes_per_second / sharing, link.latency_seconds * rings)


def predict_mesh(
    step: Step,
    machines: Machines,
    axes: Sequence[MeshAxis],
    compute_share: float,
) -> MeshPrediction:
    """Predicts the step of a mesh that shares one device's batch.

    Args:
        step: `Step` of one device with the global batch; its `reduced_bytes`
            are not used.
        axes: Sequence of `MeshAxis`, see `axis_seconds`.
        compute_share: Float, a device's FLOPs by those of the whole step, with
            an equal share of the rows.

    Raises:
        InputError: If the mesh needs several machines and `machines.between`
            is `None`.
    """
    for axis in axes:
        if axis.divides_rows:  # The largest share limits the step.
            most_rows = math.ceil(step.rows / axis.size)
            compute_share *= most_rows * axis.size / step.rows
    compute = step.compute(compute_share)
    num_devices = math.prod(axis.size for axis in axes)
    host = step.host(min(num_devices, machines.replicas_per_machine))
    # Each machine reads the global batch.
    input_seconds = step.rows / step.input_rows_per_second
    seconds = axis_seconds(axes, machines)
    hidden = step.overlap * BACKWARD_SHARE * compute
    exposed = {
        f"along {axis.name}": max(0.0, each - hidden * axis.divides_rows)
        for axis, each in zip(axes, seconds)
    }
    device = compute + sum(exposed.values())
    stages = {"compute": compute, **exposed}
    limit = max(stages, key=lambda name: stages[name])
    if max(host, input_seconds) > device:
        limit = "host" if host >= input_seconds else "input"
    total = max(device, host, input_seconds)
    one = max(step.compute_seconds, step.host_seconds, input_seconds)
    return MeshPrediction(
        mesh={axis.name: axis.size for axis in axes},
        global_batch_size=step.rows,
        compute_seconds=compute,
        host_seconds=host,
        input_seconds=input_seconds,
        axis_seconds={axis.name: s for axis, s in zip(axes, seconds)},
        exposed_seconds=device - compute,
        step_seconds=total,
        limit=limit,
        speed_up=one / total,
    )
