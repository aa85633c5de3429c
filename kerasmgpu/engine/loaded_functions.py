"""Lets functions of a SavedModel be called in the scope in which it was loaded.

In a strategy's scope, `tf.saved_model.load` makes variables with a copy per
replica, and its functions run in `strategy.run` only: elsewhere they get
placeholders in the place of variables, and fail. Here they get the first copies,
and what they assign is copied to the others. Checked on TensorFlow 2.18 and 2.21.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import (
    DistributedVariable,
    LoadedFunction,
    auto_control_deps_utils,
    values_util,
)
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.one_device import is_sum


@seam(LoadedFunction, "_call_flat")
def _call_flat(
    original: Original, self: Any, args: Any, captured_inputs: Any
) -> Any:
    # Outside of scopes TensorFlow's default strategy is in replica context.
    inside = tf.distribute.has_strategy()
    in_replica = inside and not tf.distribute.in_cross_replica_context()
    copied = [
        (number, one)
        for number, one in enumerate(captured_inputs)
        if isinstance(one, DistributedVariable)
        and is_ours(one.distribute_strategy)
    ]
    if in_replica or not copied or values_util.is_saving_non_distributed():
        return original(self, args, captured_inputs)
    inputs = list(captured_inputs)
    for number, variable in copied:
        if is_sum(variable):  # The first copy gets the total.
            variable.assign(variable.read_value())
        inputs[number] = variable.values[0].handle
    outputs = original(self, args, inputs)
    read = _read_only(self.graph, len(inputs))
    for number, variable in copied:
        if number not in read and not is_sum(variable):
            first, *others = variable.values
            for copy in others:
                with tf.device(copy.device):
                    copy.assign(first.read_value(), read_value=False)
    return outputs


def _read_only(graph: Any, num_captured: int) -> set[int]:
    """Returns which captured inputs of a graph, its last inputs, it only reads."""
    first = len(graph.inputs) - num_captured
    indices: Sequence[int] = (
        auto_control_deps_utils.get_read_only_resource_input_indices_graph(
            graph
        )
    )
    return {index - first for index in indices}
