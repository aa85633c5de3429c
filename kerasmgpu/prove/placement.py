"""Checks where a written step's operations run, and what that copies.

TensorFlow runs an operation that GPUs have no kernel for on the host, and copies
what it takes and gives. It can't, and fails, where the operation takes a
variable that is on a GPU.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.written_function import (
    Reference,
    WrittenNode,
)
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.partitioner.runtime.imagined import ImaginedHandle
from kerasmgpu.partitioner.step import kernels
from kerasmgpu.prove.called_functions import (
    ARGUMENT,
    HOST,
    Called,
    device_in,
    in_order,
    inputs_of_bodies,
    inside,
    is_loop,
)

_SENT_BY_GPUS = {
    tf.bfloat16: ("CollectiveReduceV2", "CollectiveReduceScatterV2"),
    tf.float16: (),
    tf.float32: (),
    tf.float64: (),
    tf.int64: (),
}
"""Types that collectives of GPUs take, with the only ones that do; empty: all.
Seen on GPUs (TensorFlow 2.18 to 2.21): they refuse int32, which no list says."""

BATCH, CLUSTERS = "the batch", "clusters of XLA"
"""What tensors are copied for, that are not for one operation."""

_NOT_COPIED = (tf.resource, tf.variant, tf.string)
Where = list[str]
"""For each output of a node, the memory it is in: `HOST`, or a device."""


@dataclasses.dataclass
class Placement:
    """What a step asks of its devices.

    Attributes:
        on_gpus: Number of operations with a kernel for their types on the GPU
            on which they run.
        on_host: Number of operations that a step runs on the host in any case.
        moved: Maps a node's name, operation and types to its number: those
            that run on the host for want of a kernel.
        faults: Sentences, why the step can't run.
        copied: Maps names of nodes to bytes that a step copies between the
            host and the first GPU for them; see `BATCH`.
            Tensors whose size isn't known before count nothing.
        num_copies: Number of such copies.
    """

    on_gpus: int = 0
    on_host: int = 0
    moved: collections.Counter[tuple[str, str, str]] = dataclasses.field(
        default_factory=collections.Counter
    )
    faults: list[str] = dataclasses.field(default_factory=list)
    copied: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    num_copies: int = 0


def place(step: WrittenStep, devices: Sequence[str]) -> Placement:
    """Places each operation of a step as TensorFlow does.

    Args:
        devices: Full names of the GPUs of the worker for which it is written.
    """
    return _Placing(step, [device_in(name) for name in devices]).run()


class _Placing:
    def __init__(self, step: WrittenStep, devices: Sequence[str]) -> None:
        self._step, self._devices = step, devices
        self._found = Placement()
        self._origins = step.origins()

    def run(self) -> Placement:
        main = Called((), self._step.main, HOST, 1, False)
        self._place(main, list(map(self._of_argument, self._step.arguments)))
        return self._found

    def _of_argument(
        self, argument: tuple[ImaginedHandle | int, Static]
    ) -> str:
        """Where an argument of the step is."""
        held = argument[0]
        # A resource without copies, such as a table for look-ups, is on the host.
        if isinstance(held, int) or not held.variable.is_copied:
            return HOST
        return HOST if held.variable.is_offloaded else self._devices[held.place]

    def _place(self, called: Called, given: Where) -> Where:
        """Places the nodes of a function; returns where its results are."""
        function = called.function
        where: dict[Reference, str] = {}
        seen: set[tuple[Reference, str]] = set()
        for number in in_order(function.nodes):
            node = function.nodes[number]
            if node.type == ARGUMENT:
                where[number, 0] = given[number]
                continue
            bodies = inside(self._step, called, node)
            if bodies:
                passed = [where[one] for one in inputs_of_bodies(node)]
                if bodies[0].is_compiled and not called.is_compiled:
                    device = called.device_of(node)
                    needs = [device] * len(node.inputs)
                    self._copy(called, node, needs, where, seen)
                    passed = [device] * len(passed)
                results = [self._place(body, passed) for body in bodies]
                # A loop's first function is its condition.
                made = results[-1] if is_loop(node) else results[0]
            else:
                device, kernel = self._device(called, node, where)
                made = _memories(kernels.output_names, node, device, kernel)
                if not called.is_compiled:
                    needs = _memories(kernels.input_names, node, device, kernel)
                    self._copy(called, node, needs, where, seen)
            where.update(((number, n), one) for n, one in enumerate(made))
        return [where[one] for one in function.returned]

    def _device(
        self, called: Called, node: WrittenNode, where: Mapping[Reference, str]
    ) -> tuple[str, kernels.Kernel | None]:
        """Returns where a node runs, and its kernel there; `None` on the host."""
        wanted = called.device_of(node)
        if wanted == HOST:
            self._found.on_host += 1
            return HOST, None
        if wanted not in self._devices:
            self._fault(
                called, node, f"is placed on {wanted}, which there is not"
            )
            return HOST, None
        variables = {
            where[n, index]
            for n, index in node.inputs
            if called.function.nodes[n].outputs[index].dtype == tf.resource
        }
        kind = "XLA_GPU_JIT" if called.is_compiled else "GPU"
        kernel = kernels.kernel_of(node.definition, kind)
        if kernel is None and called.is_compiled:
            self._fault(
                called, node, f"has no kernel of XLA for GPUs ({_types(node)})"
            )
        elif kernel is None and variables - {HOST}:
            self._fault(
                called,
                node,
                f"takes a variable on {', '.join(sorted(variables))} and has no "
                f"kernel of GPUs ({_types(node)})",
            )
        elif kernel is None:
            self._found.moved[node.name, node.type, _types(node)] += (
                called.times
            )
        elif variables - {wanted}:
            self._fault(
                called,
                node,
                f"runs on {wanted} and takes a variable on "
                f"{', '.join(sorted(variables))}",
            )
        elif _is_refused(node):
            self._fault(
                called,
                node,
                f"sends {node.outputs[0].dtype.name}, which GPUs refuse",
            )
        if kernel is None:
            return HOST, None
        self._found.on_gpus += 1
        return wanted, kernel

    def _copy(
        self,
        called: Called,
        node: WrittenNode,
        needs: Sequence[str],
        where: Mapping[Reference, str],
        seen: set[tuple[Reference, str]],
    ) -> None:
        """Counts what is copied between the host and the first GPU for a node.

        Args:
            needs: For each input, the memory in which it is needed.
            seen: Outputs, and the memory that they have been copied to; those
                of this node are added.
        """
        for wanted, one in zip(needs, node.inputs):
            source = called.function.nodes[one[0]]
            static = source.outputs[one[1]]
            is_copy = {where[one], wanted} == {HOST, self._devices[0]}
            if (
                is_copy
                and static.dtype not in _NOT_COPIED
                and (one, wanted) not in seen
            ):
                seen.add((one, wanted))
                self._found.num_copies += called.times
                what = (
                    CLUSTERS
                    if node.type.endswith("PartitionedCall")
                    else node.name
                )
                what = BATCH if source.type == ARGUMENT else what
                number = static.num_bytes if static.is_known else 0
                self._found.copied[what] += number * called.times

    def _fault(self, called: Called, node: WrittenNode, what: str) -> None:
        name = node.name
        if called.is_compiled:
            name = self._origins.get((called.path[-1][0], name), name)
        self._found.faults.append(f"{node.type} {name!r} {what}")


def _memories(
    names: Callable[[Any], list[str]],
    node: WrittenNode,
    device: str,
    kernel: kernels.Kernel | None,
) -> Where:
    """Returns the memory of each input or output of a node; `names` says which."""
    return [
        HOST if kernel is None or name in kernel.on_host else device
        for name in names(node.definition)
    ]


def _is_refused(node: WrittenNode) -> bool:
    """Whether it is a collective of a type that GPUs don't send."""
    if not node.type.startswith("Collective"):
        return False
    only = _SENT_BY_GPUS.get(node.outputs[0].dtype)
    return only is None or bool(only) and node.type not in only


def _types(node: WrittenNode) -> str:
    """Types of a node's attributes, as text: `"T=string"`."""
    found = []
    for name, value in sorted(node.definition.attr.items()):
        listed = value.list.type or ([value.type] if value.type else [])
        if listed:
            names = ", ".join(tf.as_dtype(one).name for one in listed)
            found.append(f"{name}={names}")
    return ", ".join(found)
