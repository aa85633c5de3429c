"""The programs of other tables, proved: kernels and order, without numbers."""

import contextlib
import dataclasses
import time

import keras

import kerasmgpu
from benchmarks.exactness.registry import cases
from kerasmgpu.commands.traced_step import trace_step
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.traced_step import with_variables
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.prove.order import check_order
from kerasmgpu.prove.placement import place
from kerasmgpu.strategies.layouts import Layouts
from kerasmgpu.strategies.noted_distributions import noted
from tests.parity.meshes import both_divided

SETTINGS = {
    "none": {},
    "weights": {"shard": "weights", "num_workers": 2},
    "micro": {"shard": "weights", "micro_batches": 2},
    "groups": {
        "shard": "weights",
        "shard_over": 2,
        "num_workers": 2,
        "micro_batches": 2,
    },
    "mesh": {},
}
"""Settings of a run on four GPUs; a mesh is of two by two, with every variable
divided along both axes."""

TABLES = ("parity", "models", "keras_hub")


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is known of a program on four GPUs.

    Attributes:
        faults: Sentences, what speaks against it.
        moved: Operations that run on the host for want of a kernel.
        seconds: How long it took, without tracing.
    """

    faults: list[str]
    moved: list[str]
    seconds: float


def programs(table):
    """The programs of a table by name: functions that return model and data.

    They compute in float32, as programs for GPUs do, unless they say otherwise.
    """
    return {name: _of_case(case) for name, case in cases(table).items()}


def _of_case(case):
    def make():
        program = case.make()
        fit = program.fit
        x, y, weights = (fit.get(name) for name in ("x", "y", "sample_weight"))
        if y is None and weights is None:
            is_data_set = not (hasattr(x, "shape") or isinstance(x, dict))
            return program.model, x if is_data_set else (x,)
        data = (x, y) if weights is None else (x, y, weights)
        return program.model, data

    return make


def traced(make, on_mesh=False):
    """The traced step of a program, maybe with a `keras.distribution`."""
    keras.backend.clear_session()
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    with contextlib.ExitStack() as stack:
        note = stack.enter_context(noted(4, "CPU", strategy))
        stack.enter_context(strategy.scope())
        if on_mesh:
            stack.enter_context(both_divided((2, 2)).scope())
        model, data = make()
        step = with_variables(model, trace_step(model, data, None))
        return dataclasses.replace(step, distribution=note.distribution)


def proved(step, name):
    """Proves a traced step in a setting of `SETTINGS`."""
    begin = time.perf_counter()
    layouts = None
    if step.distribution is not None:
        layouts = Layouts(step.distribution)
    setting = Setting(
        4, layouts, min_shard_bytes=0, device_type="GPU", **SETTINGS[name]
    )
    written = [
        WrittenStep(step, setting, worker)
        for worker in range(setting.num_workers)
    ]
    placements = [place(one, one.devices) for one in written]
    faults = [fault for one in placements for fault in one.faults]
    faults += check_order(written).faults
    moved = sorted(
        {f"{kind} ({types})" for _, kind, types in placements[0].moved}
    )
    return Proof(faults, moved, time.perf_counter() - begin)
