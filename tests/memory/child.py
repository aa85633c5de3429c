"""What `python -m tests.memory` runs in other processes; it prints JSON."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu.engine import devices
from kerasmgpu.memory.state_bytes import Setting, state_bytes
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.memory.traced_step import trace_step
from tests.memory import allocator, measuring_processes
from tests.memory.programs import PROGRAMS, RECOMPUTES

_WANTED = 16 << 20
"""Bytes of a step, at least: what no size tells is small then."""

_MOST_ROWS = 1 << 14


def main(names):
    """Prints a line for each program."""
    # As the command does: the program of two replicas tells all numbers.
    devices.make_logical_cpus(2)
    for name in names:
        try:
            program, on_host, _ = name.partition(measuring_processes.ON_HOST)
            result = measured(
                PROGRAMS[program], bool(on_host), RECOMPUTES.get(program)
            )
        # Whatever is raised is the result that the table reports.
        except Exception as error:  # noqa: B902
            result = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        print(json.dumps({"name": name, **result}), flush=True)


def measured(program, on_host, recompute):
    """Predicted and measured bytes of a program on one replica.

    Args:
        program: Function that returns a model and arrays `(x, y)`.
        on_host: Whether slots are offloaded, of a replica on another device than
            the host. Measured is what both need, and predicted for a GPU.
        recompute: See `kerasmgpu.MirroredStrategy`.
    """
    shard, offload = ("optimizer",) * 2 if on_host else ("none", None)
    device_type, device = ("GPU", "CPU:1") if on_host else ("CPU", "CPU:0")
    two = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    step, *_ = _traced(two, program)

    def prediction(rows):
        setting = Setting(
            shard=shard,
            rows=rows,
            device_type=device_type,
            recompute=recompute,
            offload=offload,
        )
        return step_peak(step, setting)

    rows, predicted = 32, prediction(32)
    while predicted.total < _WANTED and rows < _MOST_ROWS:
        rows *= 2
        predicted = prediction(rows)
    state = state_bytes(
        step.variables, Setting(1, shard=shard, offload=offload)
    )
    types = {node.type for node in step.program.trace.graph.nodes}
    one = kerasmgpu.MirroredStrategy(
        [device], shard=shard, offload=offload, recompute=recompute
    )
    # The model is kept: its variables are counted below.
    step, data, model = _traced(one, program)
    leaves = tf.nest.flatten(_tiled(data, rows))
    outputs, everything = allocator.step_peak(
        step, list(map(tf.convert_to_tensor, leaves))
    )
    held = [
        variable.shape.num_elements() * variable.dtype.size
        for variable in one.extended._by_number().values()
    ]
    del model
    return {
        "rows": rows,
        "state": state.total + state.host,
        "held": sum(held),
        "predicted": predicted.total
        - predicted.batch
        - predicted.constants
        + (predicted.host - state.host if on_host else 0),
        "outputs": outputs,
        "all": everything,
        "convolves": any("Conv" in type for type in types),
        "assumed": predicted.assumed,
    }


def _traced(strategy, program):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, data = program()
        model.jit_compile = False
        return trace_step(model, data, 32), data, model


def _tiled(nest, rows):
    """The rows of arrays over and over, until there are `rows`."""

    def leaf(array):
        array = np.asarray(array)
        return np.concatenate([array] * -(-rows // len(array)))[:rows]

    return tf.nest.map_structure(leaf, nest)


if __name__ == "__main__":
    main(sys.argv[1:])
