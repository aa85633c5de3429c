"""Predicts the step time of N replicas from one replica's step and the links.

Plain arithmetic on the standard library. Device, host and input work at the
same time, as the stages of a pipeline, so the slowest limits the step:

    step = max(device, host, input)
    device = compute + exposed all-reduce (not hidden by compute)

* *compute*: the device's forward pass, backward pass and update;
* *host*: the process that prepares and launches the work of its machine's
  replicas;
* *input*: the pipeline that a machine's replicas share;
* *all-reduce*: of the gradients, inside machines and between them.

Not modelled: stragglers, and contention (an input pipeline and a host that
use the same cores). Where two stages take about the same time, real steps are
slower than the prediction.
"""

import dataclasses
import math
from collections.abc import Sequence

from kerasmgpu.errors import InputError, checked_integer, checked_number

LIMITS = ("compute", "all-reduce", "host", "input")
"""The possible bottlenecks of a step."""

ALGORITHMS = ("hierarchical", "ring")

BACKWARD_SHARE = 2 / 3
"""Share of compute that is the backward pass: for each matrix product of the
forward pass it has two, for the gradients of the weights and of the activations
(Kaplan et al., arXiv:2001.08361, section 2.1: 2 of 6 operations are forward).
"""


@dataclasses.dataclass(frozen=True)
class Link:
    """A connection between two replicas, or between two machines.

    Attributes:
        bytes_per_second: Float, in each direction, with both in use.
        latency_seconds: Float, of one message. Defaults to 0.
    """

    bytes_per_second: float
    latency_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Machines:
    """The machines, their links and the all-reduce algorithm.

    Attributes:
        replicas_per_machine: Integer, at least 1.
        inside: `Link` between the replicas of one machine.
        between: `Link` of one machine to the others, shared by its replicas.
            `None` for a single machine.
        algorithm: `"hierarchical"` (default: a ring in each machine and one
            between the machines) or `"ring"` (one through all replicas).
    """

    replicas_per_machine: int
    inside: Link
    between: Link | None = None
    algorithm: str = "hierarchical"


@dataclasses.dataclass(frozen=True)
class Step:
    """The step of a single replica, as measured.

    Attributes:
        rows: Integer, its batch size.
        compute_seconds: Float, the device's time.
        reduced_bytes: Float, bytes of gradients that the replicas all-reduce.
        fixed_seconds: Float, the part of `compute_seconds` that does not
            depend on the batch size. Defaults to 0.
        host_seconds: Float, the host's time. Defaults to 0.
        host_seconds_per_replica: Float, host time that each further replica
            of a machine adds. Default: `host_seconds`, for a host that repeats
            all its work per replica.
        input_rows_per_second: Float, maximum rate of a machine's input
            pipeline. Default: infinite.
        overlap: Float from 0 to 1, share of the backward pass that can hide
            the all-reduce: 0 (default) if gradients are packed and summed
            after it, as under `tf.distribute`; near 1 if each gradient is sent
            as soon as it is computed.
    """

    rows: int
    compute_seconds: float
    reduced_bytes: float
    fixed_seconds: float = 0.0
    host_seconds: float = 0.0
    host_seconds_per_replica: float | None = None
    input_rows_per_second: float = math.inf
    overlap: float = 0.0

    def __post_init__(self) -> None:
        checked_integer(self.rows, "rows", minimum=1)
        checked_number(self.compute_seconds, "compute_seconds")
        for name in ("reduced_bytes", "fixed_seconds", "host_seconds"):
            checked_number(getattr(self, name), name, zero_allowed=True)
        if self.fixed_seconds > self.compute_seconds:
            raise InputError(
                "fixed_seconds is a part of compute_seconds. Received: "
                f"{self.fixed_seconds:g} of {self.compute_seconds:g} seconds"
            )
        if not 0 <= self.overlap <= 1:
            raise InputError(
                "overlap must be a number from 0 to 1. Received: "
                f"overlap={self.overlap!r}"
            )
        if not self.input_rows_per_second > 0:
            raise InputError(
                "input_rows_per_second must be above 0. Received: "
                f"input_rows_per_second={self.input_rows_per_second!r}"
            )

    def compute(self, share: float) -> float:
        """Returns the device's seconds for a share of the rows' operations."""
        variable = self.compute_seconds - self.fixed_seconds
        return self.fixed_seconds + variable * share

    def host(self, replicas: int) -> float:
        """Returns the host's seconds for several replicas of its machine."""
        further = self.host_seconds_per_replica
        if further is None:
            further = self.host_seconds
        return self.host_seconds + further * (replicas - 1)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The predicted step of several replicas: seconds, speed-up, bottleneck.

    `all_reduce_seconds` is the whole all-reduce, `exposed_seconds` the part
    not hidden by compute. `limit` is one of `LIMITS`. `speed_up` and
    `efficiency` are relative to the prediction for one replica.
    """

    replicas: int
    global_batch_size: int
    compute_seconds: float
    host_seconds: float
    input_seconds: float
    all_reduce_seconds: float
    exposed_seconds: float
    step_seconds: float
    limit: str
    examples_per_second: float
    speed_up: float = 1.0
    efficiency: float = 1.0


def ring_seconds(num_bytes: float, num_members: int, link: Link) -> float:
    """Returns the seconds of a ring all-reduce.

    It sends 2 (N - 1) messages of 1 / N of the bytes in sequence: a
    reduce-scatter, then an all-gather (Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", J. Parallel and
    Distributed Computing 69, 2009, section 3).

    Args:
        num_bytes: Float, size of each member's tensor.
        num_members: Integer, at least 1.
        link: `Link` from each member to the next.

    Example:

    >>> ring_seconds(4e9, num_members=4, link=Link(1e9, latency_seconds=0.5))
    9.0
    """
    messages = 2 * (num_members - 1)
    return messages * (
        num_bytes / num_members / link.bytes_per_second + link.latency_seconds
    )


def all_reduce_seconds(
    num_bytes: float, num_replicas: int, machines: Machines
) -> float:
    """Returns the seconds to all-reduce the gradients of all replicas.

    `"hierarchical"` is a reduce-scatter inside each machine, a ring all-reduce
    of each replica's part between the machines (all parts together send
    `num_bytes` through the machine's link), and an all-gather inside. The
    reduce-scatter and the all-gather take the time of one ring all-reduce.
    `"ring"` is a single ring through all replicas, limited by its slowest
    link.

    Raises:
        InputError: If the replicas need several machines and
            `machines.between` is `None`.
    """
    inside = min(num_replicas, machines.replicas_per_machine)
    count = math.ceil(num_replicas / machines.replicas_per_machine)
    if count == 1:
        return ring_seconds(num_bytes, inside, machines.inside)
    if machines.between is None:
        raise InputError(
            f"{num_replicas} replicas are more than one machine's "
            f"{machines.replicas_per_machine}; give the link between machines"
        )
    if machines.algorithm == "hierarchical":
        return ring_seconds(num_bytes, inside, machines.inside) + ring_seconds(
            num_bytes, count, machines.between
        )
    links = (machines.inside, machines.between)[inside == 1 :]
    slowest = min(link.bytes_per_second for link in links)
    latency = max(link.latency_seconds for link in links)
    return ring_seconds(num_bytes, num_replicas, Link(slowest, latency))


def predict(
    step: Step,
    machines: Machines,
    num_replicas: int,
    global_batch_size: int | None = None,
) -> Prediction:
    """Predicts the step of `num_replicas` replicas.

    Args:
        global_batch_size: Integer, rows that all replicas share (strong
            scaling). Default: every replica has `step.rows` (weak scaling).

    Raises:
        InputError: If a number is invalid.

    Example:

    >>> step = Step(rows=64, compute_seconds=0.3, reduced_bytes=1e8)
    >>> machines = Machines(8, inside=Link(1e9))
    >>> prediction = predict(step, machines, num_replicas=2)
    >>> round(prediction.speed_up, 2), prediction.limit
    (1.5, 'compute')
    """
    checked_integer(num_replicas, "num_replicas", minimum=1)
    checked_integer(machines.replicas_per_machine, "replicas_per_machine", 1)
    if global_batch_size is not None:
        checked_integer(global_batch_size, "global_batch_size", minimum=1)
    many = _step_of(step, machines, num_replicas, global_batch_size)
    one = _step_of(step, machines, 1, global_batch_size)
    speed_up = many.examples_per_second / one.examples_per_second
    return dataclasses.replace(
        many, speed_up=speed_up, efficiency=speed_up / num_replicas
    )


def _step_of(
    step: Step,
    machines: Machines,
    num_replicas: int,
    global_batch_size: int | None,
) -> Prediction:
    """Returns the `Prediction` without `speed_up` and `efficiency`."""
    global_rows = global_batch_size or step.rows * num_replicas
    # The largest share limits the step.
    rows = math.ceil(global_rows / num_replicas)
    on_machine = min(num_replicas, machines.replicas_per_machine)
    compute = step.compute(rows / step.rows)
    host = step.host(on_machine)
    input_rows = min(rows * on_machine, global_rows)
    input_seconds = input_rows / step.input_rows_per_second
    reduction = all_reduce_seconds(step.reduced_bytes, num_replicas, machines)
    hidden = step.overlap * BACKWARD_SHARE * compute
    exposed = max(0.0, reduction - hidden)
    seconds = max(compute + exposed, host, input_seconds)
    return Prediction(
        replicas=num_replicas,
        global_batch_size=global_rows,
        compute_seconds=compute,
        host_seconds=host,
        input_seconds=input_seconds,
        all_reduce_seconds=reduction,
        exposed_seconds=exposed,
        step_seconds=seconds,
        limit=_limit(compute, exposed, host, input_seconds),
        examples_per_second=global_rows / seconds,
    )


def _limit(
    compute: float, exposed: float, host: float, input_seconds: float
) -> str:
    """Returns the slowest stage; for the device, compute or all-reduce."""
    if compute + exposed >= max(host, input_seconds):
        return "compute" if compute >= exposed else "all-reduce"
    return "host" if host >= input_seconds else "input"


def last_that_helps(
    predictions: Sequence[Prediction], worth: float = 0.1
) -> int | None:
    """Returns the number of replicas beyond which more don't help.

    More replicas help if some larger number of them raises the speed-up by at
    least `worth` per added replica.

    Args:
        predictions: Sequence of `Prediction`, fewest replicas first.
        worth: Float, least speed-up per added replica; 1 is ideal scaling.
            Defaults to 0.1.

    Returns:
        Integer, or `None` if even the largest number helps.

    Example:

    ```python
    counts = (1, 2, 4, 8)
    last_that_helps([predict(step, machines, count) for count in counts])
    ```
    """
    for position, here in enumerate(predictions[:-1]):
        if not any(
            more.speed_up - here.speed_up
            >= worth * (more.replicas - here.replicas)
            for more in predictions[position + 1 :]
        ):
            return here.replicas
    return None
