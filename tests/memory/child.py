"""What `python -m tests.memory` runs in other processes; it prints JSON."""

import dataclasses
import json
import sys

from tests.memory import allocator  # isort: skip  (before TensorFlow starts)
import keras
import tensorflow as tf

import kerasmgpu
import kerasmgpu.memory.step_memory as prediction
from kerasmgpu.engine import devices
from kerasmgpu.memory.state_bytes import state_bytes
from kerasmgpu.memory.traced_step import trace_step

_WANTED = 16 << 20
"""Bytes of a step, at least: the allocator's rounding is small then."""

_MOST_ROWS = 1 << 14


def main(names):
    from tests.memory.programs import PROGRAMS

    # As the command: one program of two replicas is counted for any number.
    devices.make_logical_cpus(2)
    allocator.reserve()
    for name in names:
        print(
            json.dumps({"name": name, **measured(PROGRAMS[name])}), flush=True
        )


def measured(program):
    """Predicted and measured bytes of a program on one replica.

    Args:
        program: A function that returns a model and arrays `(x, y)`.
    """
    two = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    step, data = _traced(two, program)
    rows = 32
    while rows < _MOST_ROWS:
        predicted = prediction.step_peak(step, rows=rows)
        if predicted.activations + predicted.workspace >= _WANTED:
            break
        rows *= 2
    state = state_bytes(step.variables, "none", 1).total
    del step, data
    one = kerasmgpu.MirroredStrategy(["CPU:0"])
    step, data = _traced(one, program)
    batch = [
        tf.convert_to_tensor(leaf)
        for leaf in tf.nest.flatten(allocator.tiled(data, rows))
    ]
    result = {
        "rows": rows,
        "state": state,
        "held": sum(
            variable.shape.num_elements() * variable.dtype.size
            for variable in one.extended._variables()
        ),
        "predicted": predicted.total - predicted.batch - predicted.constants,
        "measured": allocator.step_peak(step, batch),
        "parts": dataclasses.asdict(predicted),
    }
    keras.backend.clear_session()
    return result


def _traced(strategy, program):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, data = program()
        model.jit_compile = False
        return trace_step(model, data, 32), data


if __name__ == "__main__":
    main(sys.argv[1:])
