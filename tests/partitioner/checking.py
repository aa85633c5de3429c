"""Runs a step on one device and on replicas, and compares the results."""

import contextlib
import functools
from unittest import mock

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.planning import planner as planning
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.replica_arithmetic import bounds_of
from tests.devices import device_name, device_names

NUM_STEPS = 2
"""Number of steps of a program with variables."""

NUM_DRAWS = 4
"""Number of steps of a program that draws: one may agree by chance."""


class Difference(Exception):
    """Raised when the results on replicas differ from those of one device."""


class Discarded(Exception):
    """Raised for a program that fails on one device or can't be compared."""


def check(step, inputs, variables, setting, precision):
    """Checks that results on replicas equal those of one device.

    Args:
        step: Function of the variables and the inputs, in this order; returns
            a tuple of tensors.
        inputs: `{name: program.Input}`.
        variables: `{name: program.Variable}`.
        setting: `program.Setting`.
        precision: The float type with the fewest digits among the step's.

    Raises:
        Difference: If they differ.
        Discarded: If the step fails on one device.
    """
    epsilon = float(np.finfo(precision).eps)
    try:
        expected, moved = _on_one_device(
            step, inputs, variables, setting, (0.0, 4 * epsilon)
        )
    except Exception as error:
        raise Discarded(f"{type(error).__name__}: {error}") from error
    if not expected:
        raise Discarded("It returns nothing.")
    try:
        # Programs are small: shard even products of few elements.
        with mock.patch.object(planning, "LEAST_SHARED", 0):
            found = _on_replicas(step, inputs, variables, setting)
    except Exception as error:
        raise Difference(_first_lines(error)) from error
    for name in expected:
        _compare(name, expected[name], found[name], moved[name], epsilon)


def _on_one_device(step, inputs, variables, setting, changes):
    """Runs a step on one device, once per relative change of the inputs.

    Returns:
        For each change, `{name: array}` of the outputs and variables after
        each step.
    """
    made = [variable.make() for variable in variables.values()]

    def traced():
        return tf.function(
            functools.partial(step, *made),
            input_signature=specifications(inputs, setting),
            autograph=False,
        )

    function = traced()
    results = []
    for relative in changes:
        if setting.draws:
            function = traced()  # One that has drawn nothing yet.
        for variable, held in zip(variables.values(), made):
            held.assign(variable.initial.tensor(relative))
        tensors = [given.tensor(relative) for given in inputs.values()]
        with _as_written():
            results.append(
                _steps(
                    functools.partial(function, *tensors),
                    dict(zip(variables, made)),
                    setting,
                )
            )
    return results


@contextlib.contextmanager
def _as_written():
    """Disables TensorFlow's graph optimizer (Grappler).

    With it, TensorFlow 2.21 returns an empty tensor for some loops.
    """
    options = tf.config.optimizer
    options.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        options.set_experimental_options({"disable_meta_optimizer": False})


def _on_replicas(step, inputs, variables, setting):
    """Runs a step on replicas; also checks that copies of variables agree."""
    if variables:
        strategy = _strategy(setting.num_replicas, setting.shard)
        replicas, one_device = strategy.replicas, strategy.extended.one_device
        scope = strategy.scope()
    else:
        replicas, one_device = _replicas(setting.num_replicas), None
        scope = contextlib.nullcontext()
    replicas = replicas.split(setting.micro_batches)
    with scope:
        made = [variable.make() for variable in variables.values()]
    partitioned = Partitioned(
        functools.partial(step, *made),
        replicas,
        one_device or contextlib.nullcontext,
        "step",
    )
    tensors, in_shares = [], []
    for given in inputs.values():
        is_share = setting.shares and given.is_batch
        in_shares.append(is_share)
        tensors += (
            _shares(given.tensor(), setting.num_replicas)
            if is_share
            else [given.tensor()]
        )
    program = partitioned.program(
        tuple(specifications(inputs, setting)), tuple(in_shares)
    )

    def run():
        return program.trace.packed(program.written()(tensors))

    found = _steps(run, dict(zip(variables, made)), setting)
    for name, variable in zip(variables, made):
        _compare_copies(name, variable)
    return found


def specifications(inputs, setting):
    """The `tf.TensorSpec`s of a step's inputs, in their order."""
    return [
        tf.TensorSpec(
            given.shape
            if setting.static or not given.is_batch
            else (None, *given.shape[1:]),
            given.dtype,
        )
        for given in inputs.values()
    ]


def _shares(tensor, num_replicas):
    bounds = bounds_of(tensor.shape[0], num_replicas)
    return [tensor[a:b] for a, b in zip(bounds, bounds[1:])]


def _steps(run, variables, setting):
    count = NUM_STEPS if variables else 1
    count = NUM_DRAWS if setting.draws else count
    results = {}
    for number in range(count):
        prefix = f"step {number}: " if count > 1 else ""
        for position, output in enumerate(run()):
            results[f"{prefix}output {position}"] = output.numpy()
        for name, variable in variables.items():
            # The sum, if replicas hold partial sums.
            results[f"{prefix}variable {name}"] = variable.read_value().numpy()
    return results


@functools.cache
def _replicas(number):
    names = [
        f"/job:localhost/replica:0/task:0/device:{device_name(n)}"
        for n in range(number)
    ]
    host = "/job:localhost/replica:0/task:0/device:CPU:0"
    return Replicas(Mesh.on(names, host))


@functools.cache
def _strategy(number, shard=False):
    import kerasmgpu

    return kerasmgpu.MirroredStrategy(
        device_names(number),
        shard="weights" if shard else None,
        min_shard_bytes=0,
    )


# Comparison ------------------------------------------------------------------


def _compare(name, expected, found, moved, epsilon):
    if expected.dtype != found.dtype or expected.shape != found.shape:
        raise Difference(
            f"{name} is {found.dtype}{list(found.shape)}, on one device "
            f"{expected.dtype}{list(expected.shape)}."
        )
    if not _is_inexact(expected):
        _raise_where(name, expected != found, expected, found, "")
        return
    expected, found, moved = (
        array.astype(np.float64) for array in (expected, found, moved)
    )
    allowed = _tolerance(expected, moved, epsilon)
    if allowed is None:
        return  # Rounding explains anything.
    with np.errstate(all="ignore"):
        differs = np.abs(expected - found) > allowed
    finite = np.isfinite(expected) & np.isfinite(found)
    both_nan = np.isnan(expected) & np.isnan(found)
    differs = np.where(finite, differs, (expected != found) & ~both_nan)
    text = f"; {allowed:.3g} is allowed"
    _raise_where(name, differs, expected, found, text)


def _raise_where(name, differs, expected, found, text):
    if not np.any(differs):
        return
    index = tuple(int(n) for n in np.argwhere(differs)[0])
    raise Difference(
        f"{name}{list(expected.shape)}: {np.sum(differs)} elements differ; at "
        f"{list(index)} it is {found[index]}, on one device {expected[index]}"
        f"{text}"
    )


def _tolerance(expected, moved, epsilon):
    """Returns the largest difference that rounding explains; `None`: any.

    Sums over replicas add in another order, so their last digits differ. Runs
    with changed last digits of the inputs show the effect on the results.
    """
    if not _same_special(expected, moved):
        return None
    finite = np.isfinite(expected) & np.isfinite(moved)
    with np.errstate(all="ignore"):
        change = np.abs(np.where(finite, expected - moved, 0)).max(initial=0)
        largest = np.abs(np.where(finite, expected, 0)).max(initial=0)
    if change > 1e4 * epsilon * largest and change > 0.01 * largest:
        return None
    return 64 * epsilon * (1 + largest) + 16 * change


def _same_special(one, two):
    """Whether infinities and NaNs are in the same places of both arrays."""
    return np.array_equal(np.isnan(one), np.isnan(two)) and np.array_equal(
        np.where(np.isinf(one), one, 0), np.where(np.isinf(two), two, 0)
    )


def _compare_copies(name, variable):
    is_sum = variable.synchronization == tf.VariableSynchronization.ON_READ
    if is_sum or not hasattr(variable, "values"):
        return  # Replicas have parts of it.
    first, *others = [copy.numpy() for copy in variable.values]
    for number, copy in enumerate(others, 1):
        if first.tobytes() != copy.tobytes():
            raise Difference(
                f"variable {name} is\n{copy}\non replica {number}, on replica 0"
                f"\n{first}"
            )


def _is_inexact(array):
    return array.dtype.kind == "f"


def _first_lines(error):
    text = f"{type(error).__name__}: {error}"
    return "\n".join(text.splitlines()[:12])
