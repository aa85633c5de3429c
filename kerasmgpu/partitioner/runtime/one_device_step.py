"""Runs a traced step again on one device, on variables of its own.

TensorFlow runs the graph that was traced as one function: nothing of the
partitioner takes part, unless the step is run in micro-batches. Checked on
TensorFlow 2.18 and 2.21.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.one_device import (
    captured_variable,
    content_of,
)
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step.graph import Graph, Node
from kerasmgpu.partitioner.step.records import Trait

_REPEATABLE = {
    Trait.CHEAP,
    Trait.CHECKS,
    Trait.NO_STATE,
    Trait.READ_ONLY,
    Trait.RECURRENT,
    Trait.UPDATES,
}
"""Traits of stateful operations that do the same each time, on the same values."""

_READS_TABLE = {"LookupTableFindV2", "LookupTableSizeV2"}

_OF_CUDNN = {Trait.NO_RANDOM_STATE, Trait.PRIVATE_STATE}
"""Traits of cuDNN's recurrent layers, whose random state nothing uses."""

State = list[np.ndarray | None]
"""The value of each captured variable, on the host; `None` for other tensors."""

Summands = dict[int, list[np.ndarray]]
"""What copies hold, by the number of the captured variable; see `summands`."""


class OneDeviceStep:
    """A program's step, as it was traced for one device.

    Args:
        written: The program's `Written`.

    Attributes:
        variables: For each tensor that the trace captures: the variable with
            copies or parts, or else the variable's handle; `None` if it is no
            variable's.
    """

    def __init__(self, program: Program, written: Written) -> None:
        self._trace = program.trace
        self._is_compiled = program.form.is_compiled
        self._like = written
        self._captured = [outer for _, outer in program.trace.captured]
        self.variables = [_variable(outer) for outer in self._captured]
        self._whole: Written | None = None
        self._split: dict[tuple[str, int], tuple[Written, list[int]]] = {}

    @property
    def unrepeatable(self) -> list[str]:
        """Types of operations that may do something else the second time."""
        return list(dict.fromkeys(_unrepeatable(self._trace.graph)))

    def dtype_of(self, number: int) -> tf.DType:
        """Returns the type of a captured tensor's variable."""
        _, dtype = content_of(self._captured[number]) or (None, tf.resource)
        return dtype

    def read(self) -> State:
        """Returns the variables' values; a collective, in the strategy's scope."""
        return [
            None if one is None else _on_host(_value(one))
            for one in self.variables
        ]

    def summands(self) -> Summands:
        """Returns what each copy adds to variables that are summed when read.

        These are metrics; their values alone don't tell what copies have.
        """
        return {
            number: [_on_host(_value(copy)) for copy in variable.values]
            for number, variable in enumerate(self.variables)
            if _is_summed(variable)
        }

    def write(self, state: State, summands: Summands) -> None:
        """Gives all copies back what `read` and `summands` returned.

        In the strategy's scope.
        """
        for number, (variable, value) in enumerate(zip(self.variables, state)):
            if number in summands:
                for copy, own in zip(variable.values, summands[number]):
                    copy.assign(own)
            elif value is None:
                continue
            elif tf.is_tensor(variable) and variable.dtype == tf.resource:
                tf.raw_ops.AssignVariableOp(resource=variable, value=value)
            else:
                variable.assign(value)

    def copies(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yields numbers of variables, and their copies, which should be equal."""
        for number, variable in enumerate(self.variables):
            copies = getattr(variable, "values", ())
            if len(copies) > 1 and not _is_summed(variable):
                yield number, [_on_host(_value(copy)) for copy in copies]

    def run(
        self,
        device: str,
        tensors: Sequence[tf.Tensor],
        state: State,
        micro_batches: int = 1,
    ) -> State:
        """Runs the step on a device, on variables with given values.

        Args:
            device: Its name.
            tensors: The batch's tensors, with all rows.
            micro_batches: Parts in which the device works through the rows.

        Returns:
            The values of these variables afterwards.

        Raises:
            tf.errors.ResourceExhaustedError: If the device has too little memory.
        """
        with tf.device(device):
            scratch = [
                None if value is None else _scratch(value, outer)
                for value, outer in zip(state, self._captured)
            ]
            captured = [
                outer if one is None else one.handle
                for one, outer in zip(scratch, self._captured)
            ]
            if micro_batches == 1:
                self._call(tensors, captured)
            else:
                written, order = self._in_parts(device, micro_batches)
                written(tensors, [captured[number] for number in order])
            return [
                None if one is None else _on_host(one.read_value())
                for one in scratch
            ]

    def _call(
        self, tensors: Sequence[tf.Tensor], captured: Sequence[tf.Tensor]
    ) -> None:
        if self._whole is None:
            library = self._trace.as_function(self._is_compiled)
            lowered = self._like.lowered
            self._whole = Written(library, [], [], [], [], False, lowered)
        self._whole.call([*tensors, *captured])

    def _in_parts(
        self, device: str, micro_batches: int
    ) -> tuple[Written, list[int]]:
        """Returns a function in micro-batches, and the captured tensors it takes."""
        key = device, micro_batches
        if key not in self._split:
            handles = [
                outer if variable is None else _handle_like(outer)
                for variable, outer in zip(self.variables, self._captured)
            ]
            mesh = Mesh.on(
                [device],
                tf.DeviceSpec.from_string(device)
                .replace(device_type="CPU", device_index=0)
                .to_string(),
            )
            written = Program(
                self._trace.on_handles(handles),
                Replicas(mesh).split(micro_batches),
                jit_compile=self._is_compiled,
            ).written(with_outputs=False)
            places = {id(handle): n for n, handle in enumerate(handles)}
            order = [places[id(handle)] for handle in written.captured]
            self._split[key] = written, order
        return self._split[key]


def _unrepeatable(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        for body in node.bodies:
            yield from _unrepeatable(body)
        if node.is_stateful and not node.bodies and not _is_repeatable(node):
            yield node.type


def _is_repeatable(node: Node) -> bool:
    if _REPEATABLE & node.traits or node.traits >= _OF_CUDNN:
        return True
    handles = [one for one in node.inputs if one.dtype == tf.resource]
    # A generator's state, for example, is in a variable, which is copied.
    of_variables = all(handle.element is not None for handle in handles)
    return bool(handles) and of_variables or node.type in _READS_TABLE


def _variable(outer: tf.Tensor) -> Any:
    if outer.dtype != tf.resource or content_of(outer) is None:
        return None
    variable = captured_variable(outer)
    return outer if variable is None else variable


def _is_summed(variable: Any) -> bool:
    """Whether a variable's value is made of different ones of its copies."""
    on_read = tf.VariableSynchronization.ON_READ
    return getattr(variable, "synchronization", None) == on_read


def _value(variable: Any) -> tf.Tensor:
    if tf.is_tensor(variable) and variable.dtype == tf.resource:
        _, dtype = content_of(variable) or (None, None)
        return tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
    return tf.convert_to_tensor(variable)


def _scratch(value: np.ndarray, outer: tf.Tensor) -> Any:
    shape, dtype = content_of(outer) or (None, None)
    return resource_variable_ops.ResourceVariable(
        value, trainable=False, dtype=dtype, shape=tf.TensorShape(shape)
    )


def _handle_like(outer: tf.Tensor) -> tf.Tensor:
    """Returns a handle of a variable without a value."""
    shape, dtype = content_of(outer) or (None, None)
    return resource_variable_ops.UninitializedVariable(
        trainable=False, dtype=dtype, shape=tf.TensorShape(shape)
    ).handle


def _on_host(tensor: tf.Tensor) -> np.ndarray:
    """Returns a copy that no later step writes to."""
    return np.array(tensor.numpy())
