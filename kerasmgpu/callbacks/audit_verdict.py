"""Judges a step on replicas by the same step on one device.

Runs that differ by more than rounding are made again, there and on the other
devices, which tells apart a fault of kerasmgpu, a kernel that isn't deterministic
and a broken device. Nothing here knows of TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kerasmgpu import distances

EQUAL = "equal"
ROUNDING = "equal within rounding"
OURS = "fault of kerasmgpu"
KERNEL = "not deterministic"
ONCE = "failed once"
DEVICE = "broken device"
COPIES = "replicas' copies differ"
NOT_RUN = "not compared"
"""Verdicts on a step."""

VERDICTS = (EQUAL, ROUNDING, NOT_RUN, KERNEL, ONCE, DEVICE, COPIES, OURS)
"""All of them, the worst last."""

FORMAT = "kerasmgpu evidence 1"
"""The entry `"format"` of the files that `kerasmgpu evidence` reads."""

TRAINABLE = "trainable"
"""Kind of a trainable weight."""

_MOST_BY_ITSELF = 1e-2
"""Largest distance between two runs on one device that may be rounding."""

_ADVICE = {
    OURS: "the fault is kerasmgpu's: please file an issue with evidence.json",
    KERNEL: "a kernel isn't deterministic: kerasmgpu.deterministic() makes "
    "TensorFlow choose kernels that are, or name those that have none",
    ONCE: "a device or a transfer failed once, or a kernel isn't deterministic: "
    "test the devices if it is seen again",
    DEVICE: "it is likely broken: test it, and leave it out with devices=…",
    COPIES: "a device's memory or a transfer is likely broken, or the fault is "
    "kerasmgpu's: please file an issue with evidence.json",
}


@dataclasses.dataclass(frozen=True)
class Variable:
    """A variable that a step reads or writes.

    Attributes:
        layer: The path of its layer.
        kind: Differences are divided by the largest update of this kind.
        path: Its path.
        from_zero: Whether its value counts as the update, as that of a momentum.
    """

    layer: str
    kind: str
    path: str
    from_zero: bool


@dataclasses.dataclass
class Finding:
    """The result of comparing a step.

    Attributes:
        verdict: One of `VERDICTS`.
        by_layer: The largest distance of a layer's variables.
        text: What is wrong, in a line; empty if nothing is.
        where: The layer in which replicas differ from devices that agree; empty
            otherwise.
    """

    verdict: str
    by_layer: dict[str, float]
    text: str = ""
    where: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether replicas have trained as one device."""
        return self.verdict in (EQUAL, ROUNDING)


@dataclasses.dataclass
class Runs:
    """A step on replicas, and functions that run it again.

    Attributes:
        start: Values of the variables before the step.
        ours: Values that the replicas leave.
        variables: The `Variable`s.
        dtype: The float type of the step.
        devices: Names of the devices.
        on: Function that returns what the step leaves on a device.
        nudged: Function of a number that returns what it leaves on the first
            device with weights that are nudged; see `distances`.
        copies: Pairs of a variable's number, and the replicas' copies of it.
    """

    start: list[np.ndarray]
    ours: list[np.ndarray]
    variables: list[Variable]
    dtype: str
    devices: list[str]
    on: Callable[[str], list[np.ndarray]]
    nudged: Callable[[int], list[np.ndarray]]
    copies: Sequence[tuple[int, list[np.ndarray]]] = ()

    def distances(
        self, one: list[np.ndarray], many: list[np.ndarray]
    ) -> list[float]:
        """Returns each variable's distance between two runs."""
        start = [
            np.zeros_like(array) if variable.from_zero else array
            for variable, array in zip(self.variables, self.start)
        ]
        kinds = [variable.kind for variable in self.variables]
        return distances.weight_differences(start, one, many, kinds, 1)

    def are_like(
        self, found: Sequence[float], noises: Sequence[Sequence[float]]
    ) -> bool:
        """Whether distances are within the tolerance, or as those of some noise."""
        return all(
            distances.is_within(value, of_noise, self._limit(one), self.dtype)
            for one, value, *of_noise in zip(self.variables, found, *noises)
        )

    def _limit(self, variable: Variable) -> float:
        tolerance = distances.TOLERANCES[self.dtype]
        if variable.kind.startswith("metric"):
            return distances.log_tolerance(tolerance)
        return tolerance

    def is_too_far(self, variable: Variable, distance: float) -> bool:
        """Whether no rounding makes two runs on a device differ by as much.

        Updates of an optimizer with slots, such as Adam's, can be as large for
        rounding as for a gradient; what is linear in gradients can't.
        """
        if variable.kind == TRAINABLE and self._has_slots:
            return False
        return distance > max(_MOST_BY_ITSELF, self._limit(variable))

    @functools.cached_property
    def _has_slots(self) -> bool:
        return any(
            variable.kind.startswith("slot") and array.ndim
            for variable, array in zip(self.variables, self.start)
        )

    def by_layer(self, found: Sequence[float]) -> dict[str, float]:
        """Returns the largest of its variables' distances for each layer."""
        layers: dict[str, float] = {}
        for one, value in zip(self.variables, found):
            layers[one.layer] = max(layers.get(one.layer, 0.0), value)
        return layers

    def worst(
        self, found: Sequence[float], noises: Sequence[Sequence[float]]
    ) -> str:
        """Names the variables that differ by more than rounding."""
        beyond = [
            (value, one)
            for one, value, *noise in zip(self.variables, found, *noises)
            if not distances.is_within(
                value, noise, self._limit(one), self.dtype
            )
        ]
        beyond.sort(key=lambda pair: -pair[0])
        layers = dict.fromkeys(one.layer for _, one in beyond)
        if not beyond:
            return "no layer"
        value, one = beyond[0]
        more = f", and {len(layers) - 1} more" if len(layers) > 1 else ""
        return (
            f"layer {one.layer!r}{more} ({one.path}: {value:.1e} of its update)"
        )


def finding(runs: Runs) -> Finding:
    """Judges a step, with as few runs of it as that takes."""
    one = runs.on(runs.devices[0])
    found = runs.distances(one, runs.ours)
    by_layer = runs.by_layer(found)
    odd = _odd_copies(runs)
    if odd:
        return Finding(COPIES, by_layer, f"{odd}; {_ADVICE[COPIES]}")
    if runs.are_like(found, []):
        return Finding(EQUAL, by_layer)
    again = runs.on(runs.devices[0])
    own = runs.distances(one, again)
    if any(map(runs.is_too_far, runs.variables, own)):
        where, device = runs.worst(own, []), _short(runs.devices[0])
        text = f"{device} gives another result when it runs again, in {where}"
        return Finding(KERNEL, by_layer, f"{text}; {_ADVICE[KERNEL]}")
    noises = [
        own
    ]  # With atomic additions of GPUs a kernel isn't equal to itself.
    for number in range(distances.NUDGES):
        if runs.are_like(found, noises):
            return Finding(ROUNDING, by_layer)
        aside = runs.nudged(number)
        noise = zip(runs.distances(one, aside), runs.distances(again, aside))
        noises.append(list(map(min, noise)))
    if runs.are_like(found, noises):
        return Finding(ROUNDING, by_layer)
    where = runs.worst(found, noises)
    return _of_devices(runs, one, noises, by_layer, where)


def of_second_run(first: Finding, second: Finding) -> Finding:
    """Returns `first`, or a finding `ONCE` if the repeated step was equal."""
    if not second.is_equal:
        return first
    text = (
        f"replicas differed from one device in {first.where}, and not when they "
        f"ran the step again: {_ADVICE[ONCE]}"
    )
    return Finding(ONCE, first.by_layer, text, first.where)


def _of_devices(
    runs: Runs,
    one: list[np.ndarray],
    noises: list[list[float]],
    by_layer: dict[str, float],
    where: str,
) -> Finding:
    """Judges a difference by the step on every device."""

    def agree(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
        return runs.are_like(runs.distances(a, b), noises)

    results = {runs.devices[0]: one}
    results |= {device: runs.on(device) for device in runs.devices[1:]}
    most = max(
        (
            [o for o, b in results.items() if agree(a, b)]
            for a in results.values()
        ),
        key=len,
    )
    odd = [device for device in results if device not in most]
    if not odd:
        text = (
            f"replicas differ from one device in {where}, and "
            f"{_listed(list(results))} agree: {_ADVICE[OURS]}"
        )
        if len(results) == 1:
            text = (
                f"the step differs from the traced one in {where}: "
                f"{_ADVICE[OURS]}"
            )
        return Finding(OURS, by_layer, text, where)
    if len(odd) == len(most):
        text = f"{_listed([*most, *odd])} differ from each other in {where}"
        return Finding(
            DEVICE, by_layer, f"{text}: one of them is likely broken"
        )
    between = runs.worst(
        runs.distances(results[most[0]], results[odd[0]]), noises
    )
    once = [d for d in odd if agree(results[most[0]], runs.on(d))]
    if once:
        text = f"{_listed(once)} differed in {between}, and not when run again"
        return Finding(KERNEL, by_layer, f"{text}; {_ADVICE[KERNEL]}")
    text = f"{_listed(odd)} differ{'s' if len(odd) == 1 else ''} from "
    text += f"{_listed(most)} in {between}, each time"
    return Finding(DEVICE, by_layer, f"{text}: {_ADVICE[DEVICE]}")


def _odd_copies(runs: Runs) -> str:
    """Names the devices whose copies of a variable differ from most others'."""
    for number, copies in runs.copies:
        groups: dict[bytes, list[str]] = {}
        for device, copy in zip(runs.devices, copies):
            groups.setdefault(copy.tobytes(), []).append(device)
        if len(groups) > 1:
            *odd, most = sorted(groups.values(), key=len)
            names = [device for group in odd for device in group]
            one = runs.variables[number]
            return (
                f"{one.path} of layer {one.layer!r} on {_listed(names)} has "
                f"other bits than on {_listed(most)}"
            )
    return ""


def _listed(devices: Sequence[str]) -> str:
    names = [_short(device) for device in devices]
    if len(names) > 4:
        return f"{names[0]} to {names[-1]}"
    return " and ".join([", ".join(names[:-1]), names[-1]][len(names) == 1 :])


def _short(device: str) -> str:
    return device.rsplit("device:", 1)[-1]


def worst(verdicts: Sequence[str] | Mapping[str, object]) -> str:
    """Returns the worst of some verdicts."""
    return max(verdicts, key=VERDICTS.index, default=NOT_RUN)
