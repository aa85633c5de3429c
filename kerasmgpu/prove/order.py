"""Proves that no collective of a written step waits for ever.

A collective begins on a device when all that comes before it there is done, and
ends when all of its members have begun it. So a step ends if

1. each collective has as many members as its group, each on another device,
   which all do the same;
2. on each device, collectives are one chain: each waits for the one before, so
   that no two can begin in either order;
3. devices agree: there is no circle in which a collective comes before another
   one on one device, and behind it on another;
4. loops and branches with collectives are entered by all members together: their
   conditions are values that all replicas have, loops run one round at a time,
   and what comes before and behind waits for the whole of them;
5. none is left out: a result or a control output of its function needs it.
   TensorFlow drops all else where it inlines a function.

A loop or branch is one link of the chain of its function; its bodies have chains
of their own. Whoever waits for one of its outputs alone may run before the others
are there: only control dependencies count.
"""

import collections
import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import tensorflow as tf

from kerasmgpu.memory.written_function import WrittenNode
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.partitioner.ir.instructions import Runs, Value
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.rules.kinds import REPLICATED
from kerasmgpu.prove.called_functions import (
    Called,
    called_by,
    in_order,
    inside,
    is_loop,
)

Path = tuple[tuple[str, int], ...]
"""See `Called.path`."""

Device = tuple[int, str]
"""A worker's index, and its device."""


@dataclasses.dataclass(frozen=True)
class Link:
    """A collective, or a loop or branch with some inside, in a function.

    Attributes:
        path: Path of the function.
        key: What it is on all devices: group and instance of a collective, the
            name of a loop or branch.
        node: The name of its node.
        does: What it does: operation, type, shape and what it merges by; empty
            for a loop or branch.
        size: Number of members of a collective; 0 for a loop or branch.
    """

    path: Path
    key: Hashable
    node: str
    does: str = ""
    size: int = 0


@dataclasses.dataclass
class Order:
    """The chains of all devices, and what is wrong with them.

    Attributes:
        chains: Maps each device, and the path of a function, to its links.
        faults: Sentences, why the step may wait for ever.
    """

    chains: dict[tuple[Device, Path], list[Link]] = dataclasses.field(
        default_factory=dict
    )
    faults: list[str] = dataclasses.field(default_factory=list)

    @property
    def num_collectives(self) -> int:
        """Number of collectives, counted once for all members."""
        return len({one.key for one in self._links() if one.does})

    @property
    def longest(self) -> int:
        """Most collectives of a device."""
        counts = collections.Counter[Device]()
        for (device, _), chain in self.chains.items():
            counts[device] += sum(bool(one.does) for one in chain)
        return max(counts.values(), default=0)

    def _links(self) -> Iterator[Link]:
        return itertools.chain(*self.chains.values())


def check_order(steps: Sequence[WrittenStep]) -> Order:
    """Checks the collectives of a step.

    Args:
        steps: The step as each worker runs it.
    """
    found = Order()
    for worker, step in enumerate(steps):
        for called in called_by(step):
            _Chains(found, step, worker, called).add()
        found.faults += _conditions(step.lowered)
    _check_members(found)
    _check_agreement(found)
    found.faults = list(dict.fromkeys(found.faults))
    return found


class _Chains:
    """Adds a function's chains to `Order`."""

    def __init__(
        self, found: Order, step: WrittenStep, worker: int, called: Called
    ) -> None:
        self._found, self._step = found, step
        self._worker, self._called = worker, called

    def add(self) -> None:
        function, links = self._called.function, self._links()
        chains: dict[str, dict[int, Link]] = {}
        lengths: dict[int, dict[str, int]] = {}
        needed = function.needed if links else set()
        self._found.faults += [
            f"TensorFlow may leave out {link.node!r}, which no result needs, and "
            "its other members wait"
            for number, (link, _) in links.items()
            if number not in needed
        ]
        for number in in_order(function.nodes):
            node = function.nodes[number]
            own = self._lengths(node, links, lengths)
            lengths[number] = own
            if number not in links:
                continue
            link, devices = links[number]
            if not link.does:
                self._check_rounds(node)
            for device in devices:
                chain = chains.setdefault(device, {})
                at = own.get(device, 0)
                if at in chain:
                    self._found.faults.append(
                        f"on {_name((self._worker, device))} {link.node!r} and "
                        f"{chain[at].node!r} may begin in either order"
                    )
                chain.setdefault(at, link)
        for device, chain in chains.items():
            key = (self._worker, device), self._called.path
            self._found.chains[key] = [chain[n] for n in sorted(chain)]

    def _lengths(
        self,
        node: WrittenNode,
        links: Mapping[int, tuple[Link, set[str]]],
        lengths: Mapping[int, Mapping[str, int]],
    ) -> dict[str, int]:
        """Returns for each device the links on the longest chain before a node.

        All links of a device are one chain if each has another length before it.

        Args:
            lengths: The same of the nodes that it waits for.
        """
        nodes, sources = self._called.function.nodes, set(node.controls)
        if not self._step.bodies(node):
            inputs = {n for n, _ in node.inputs}
            sources |= {n for n in inputs if not self._step.bodies(nodes[n])}
        own: dict[str, int] = {}
        for source in sources:
            _, devices = links.get(source, (None, set()))
            for device in devices | lengths[source].keys():
                length = lengths[source].get(device, 0) + (device in devices)
                own[device] = max(own.get(device, 0), length)
        return own

    def _check_rounds(self, node: WrittenNode) -> None:
        if is_loop(node) and node.definition.attr["parallel_iterations"].i != 1:
            self._found.faults.append(
                f"rounds of {node.name!r}, which has collectives, may run at the "
                "same time"
            )

    def _links(self) -> dict[int, tuple[Link, set[str]]]:
        """Returns the links by the numbers of their nodes, with their devices."""
        links = {}
        for number, node in enumerate(self._called.function.nodes):
            if node.type.startswith("Collective"):
                device = self._called.device_of(node)
                links[number] = self._collective(node), {device}
                continue
            devices = _devices_inside(self._step, self._called, node)
            if devices:
                link = Link(self._called.path, node.name, node.name)
                links[number] = link, devices
        return links

    def _collective(self, node: WrittenNode) -> Link:
        size, group, instance = (self._key(n) for n, _ in node.inputs[1:4])
        attributes, made = node.definition.attr, node.outputs[0]
        merge = b""
        if "merge_op" in attributes:
            merge = attributes["merge_op"].s
        does = f"{node.type} {merge.decode()} {made.dtype.name} {made.shape}"
        key = group, instance
        return Link(self._called.path, key, node.name, does, int(size))

    def _key(self, number: int) -> int | str:
        """Returns a key, or text for one that a step computes from sizes.

        Such a key is a constant of the collective's own plus a multiple of
        `lengths._MOST_COLLECTIVES`. Anything else is a key that no other has.
        """
        nodes = self._called.function.nodes
        if nodes[number].type == "Const":
            return self._constant(number)
        own = [n for n, _ in nodes[number].inputs if nodes[n].type == "Const"]
        if nodes[number].type == "AddV2" and len(own) == 1:
            return f"from {self._constant(own[0])}"
        return nodes[number].name

    def _constant(self, number: int) -> int:
        node = self._called.function.nodes[number]
        return int(tf.make_ndarray(node.definition.attr["value"].tensor))


def _devices_inside(
    step: WrittenStep, called: Called, node: WrittenNode
) -> set[str]:
    """Returns the devices that have collectives in what a node calls."""
    found = set()
    for body in inside(step, called, node):
        for inner in body.function.nodes:
            if inner.type.startswith("Collective"):
                found.add(body.device_of(inner))
            found |= _devices_inside(step, body, inner)
    return found


def _conditions(lowered: Lowered) -> list[str]:
    """Checks that replicas take the same branches, and as many rounds."""
    faults = []
    for program in lowered.programs():
        for region in program.regions:
            if not any(_communicates(body, program) for body in region.bodies):
                continue
            condition = _condition(region)
            if region.runs is not Runs.TOGETHER or any(
                kind is not REPLICATED for kind in condition.placement
            ):
                faults.append(
                    f"{region.node.name!r}, which has collectives, goes by "
                    f"{condition.tensor}, which replicas may not share"
                )
    return faults


def _communicates(body: Lowered, program: Lowered) -> bool:
    """Whether a body has collectives: not if it is a function of one replica."""
    return body.mesh is program.mesh and any(body.communication())


def _condition(region: Region) -> Value:
    """The value that says whether a loop goes on, or which branch is taken."""
    return region.bodies[0].outputs[0] if region.is_loop else region.inputs[0]


def _check_members(found: Order) -> None:
    """Checks that the members of each collective are there, and do the same."""
    members: dict[Hashable, list[tuple[Device, Link]]] = {}
    for (device, _), chain in found.chains.items():
        for link in chain:
            if link.does:
                members.setdefault(link.key, []).append((device, link))
    for each in members.values():
        link = each[0][1]
        devices = [device for device, _ in each]
        names = ", ".join(map(_name, devices))
        if len(set(devices)) < len(devices):
            found.faults.append(
                f"{link.node!r} begins twice on a device ({names})"
            )
        if len(devices) != link.size:
            found.faults.append(
                f"{link.node!r} waits for {link.size} members and has "
                f"{len(devices)}: {names}"
            )
        for what in ("does", "path", "size"):
            different = {getattr(one, what): one.node for _, one in each}
            if len(different) > 1:
                texts = ", ".join(
                    f"{node!r}: {_text(value)}"
                    for value, node in different.items()
                )
                found.faults.append(
                    f"members of one collective differ in {_WORDS[what]} ({texts})"
                )


_WORDS = {
    "does": "what they do",
    "path": "the function that they are in",
    "size": "the number of members",
}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "/".join(str(name) for name, _ in value) or "the step"
    return str(value)


def _check_agreement(found: Order) -> None:
    """Checks that there is no circle among the links of all devices."""
    behind: dict[Hashable, dict[Hashable, tuple[Device, Link, Link]]] = {}
    for (device, path), chain in found.chains.items():
        for first, second in itertools.pairwise(chain):
            known = behind.setdefault((path, first.key), {})
            known.setdefault((path, second.key), (device, first, second))
            behind.setdefault((path, second.key), {})
    waits = collections.Counter(
        other for others in behind.values() for other in others
    )
    ready = [one for one in behind if not waits[one]]
    left = set(behind)
    while ready:
        one = ready.pop()
        left.discard(one)
        for other in behind[one]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    for one in sorted(left, key=repr)[:1]:
        found.faults.append(_circle(one, left, behind))


def _circle(
    one: Hashable,
    left: Iterable[Hashable],
    behind: dict[Hashable, dict[Hashable, tuple[Device, Link, Link]]],
) -> str:
    """Returns the sentence about a circle that is reached from a link."""
    remaining, seen = set(left), []
    while one not in seen:
        seen.append(one)
        # Each one left waits for another one left; so does one of those behind.
        one = next(
            other
            for other in behind
            if other in remaining and one in behind[other]
        )
    steps = [*seen[seen.index(one) :], one]
    texts = []
    for second, first in itertools.pairwise(steps):
        device, before, after = behind[first][second]
        texts.append(
            f"{before.node!r} before {after.node!r} on {_name(device)}"
        )
    return f"devices disagree on the order: {'; '.join(texts)}"


def _name(device: Device) -> str:
    worker, name = device
    return f"{name} of worker {worker}"
