"""Compares a training step with the same step on one device."""

from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu import distances
from kerasmgpu._keras import layer_costs, training_state
from kerasmgpu.callbacks import audit_verdict
from kerasmgpu.callbacks.audit_verdict import Finding
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.flops.step_flops import layers_in
from kerasmgpu.partitioner.runtime.function import Shares
from kerasmgpu.partitioner.runtime.one_device_step import OneDeviceStep, State
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written

Run = Callable[[list[tf.Tensor]], list[tf.Tensor]]


class NotComparable(Exception):
    """The step can't be compared; the message says why."""


class StepAudit:
    """Runs steps of a model again, on one device and from the same state.

    All workers of a job must call it for the same step. Each compares with its own
    devices.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._strategy: ExactStrategy = model.distribute_strategy
        self._steps: dict[Program, _Repeated] = {}
        self.micro_batches = 1

    def __call__(
        self,
        program: Program,
        written: Written,
        run: Run,
        tensors: list[tf.Tensor],
    ) -> tuple[list[tf.Tensor], Finding]:
        """Runs a step, and compares what it leaves with one device's.

        Returns:
            What `run(tensors)` returns, and a `Finding`.

        Raises:
            NotComparable: Before the step has run, if it can't be compared.
        """
        step = self._steps.get(program)
        if step is None:
            step = _Repeated(self._model, OneDeviceStep(program, written))
            self._steps[program] = step
        with self._strategy.scope():
            start, before = step.step.read(), step.step.summands()
            batch = self._whole(program, written, tensors)
            outputs = run(tensors)
            ours, after = step.step.read(), step.step.summands()
        found = self._finding(step, batch, start, ours)
        is_fault = found.verdict == audit_verdict.OURS
        if self._strategy.any_worker(is_fault):
            # Is it the program, or did a device fail?
            with self._strategy.scope():
                try:
                    step.step.write(start, before)
                    run(tensors)
                    again = step.step.read()
                finally:
                    step.step.write(ours, after)
            if is_fault:
                second = self._finding(step, batch, start, again)
                found = audit_verdict.of_second_run(found, second)
        return outputs, found

    def forget(self) -> None:
        """Lets go of the steps' functions."""
        self._steps.clear()

    def _whole(
        self, program: Program, written: Written, tensors: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Returns the tensors of the batch with all rows; a collective."""
        remaining, leaves = iter(tensors), []
        for width, in_shares in zip(written.widths, program.in_shares):
            parts = [next(remaining) for _ in range(width)]
            is_share = in_shares and parts[0].shape.rank
            leaves.append(Shares(parts) if is_share else parts[0])
        if self._strategy.num_workers > 1:
            return list(self._strategy.whole(leaves))
        with tf.device("CPU:0"):
            return [
                tf.concat(leaf.values, 0) if isinstance(leaf, Shares) else leaf
                for leaf in leaves
            ]

    def _finding(
        self,
        step: "_Repeated",
        batch: list[tf.Tensor],
        start: State,
        ours: State,
    ) -> Finding:
        devices = list(self._strategy.extended.worker_devices)

        def run(device: str, state: State) -> list[np.ndarray]:
            return step.numbers(self._run(step.step, device, batch, state))

        try:
            return audit_verdict.finding(
                audit_verdict.Runs(
                    start=step.numbers(start),
                    ours=step.numbers(ours),
                    variables=step.variables,
                    dtype=step.dtype,
                    devices=devices,
                    on=lambda device: run(device, start),
                    nudged=lambda number: self._nudged(
                        step, run, devices[0], start, number
                    ),
                    copies=[
                        (step.places[number], copies)
                        for number, copies in step.step.copies()
                        if number in step.places
                    ],
                )
            )
        except tf.errors.ResourceExhaustedError:
            return Finding(audit_verdict.NOT_RUN, {}, _NO_ROOM)
        except tf.errors.OpError as error:
            line = str(error).partition("\n")[0]
            return Finding(
                audit_verdict.NOT_RUN, {}, f"it failed on one device: {line}"
            )

    def _run(
        self,
        step: OneDeviceStep,
        device: str,
        batch: list[tf.Tensor],
        state: State,
    ) -> State:
        """Runs a step on a device; in micro-batches if it runs out of memory."""
        rows = max((len(one) for one in batch if one.shape.rank), default=1)
        most = min(rows, 2 * self._strategy.replicas.mesh.total)
        while True:
            try:
                return step.run(device, batch, state, self.micro_batches)
            except tf.errors.ResourceExhaustedError:
                if self.micro_batches >= most:
                    raise
            # As large as the parts that replicas work through, then half of that.
            replicas = self._strategy.replicas.mesh.total
            first = self.micro_batches == 1 and replicas < most
            self.micro_batches = replicas if first else most

    def _nudged(
        self,
        step: "_Repeated",
        run: Callable[[str, State], list[np.ndarray]],
        device: str,
        start: State,
        number: int,
    ) -> list[np.ndarray]:
        """Returns what one device leaves if its weights are nudged before.

        What the nudges themselves add is taken off.
        """
        random = np.random.default_rng(number)
        size, state = distances.nudge(step.dtype), list(start)
        moved: dict[int, np.ndarray] = {}
        for index, place in step.places.items():
            value = start[index]
            is_weight = step.variables[place].kind == audit_verdict.TRAINABLE
            if value is not None and is_weight and step.is_float(index):
                state[index] = aside = distances.nudged(value, size, random)
                moved[place] = distances.wide(aside) - distances.wide(value)
        after = run(device, state)
        for place, movement in moved.items():
            after[place] = after[place] - movement
        return after


_NO_ROOM = (
    "one device has too little memory for it, also in micro-batches; with "
    "shard='weights' no single device may hold the whole state"
)


class _Repeated:
    """A step, with what is known of the variables that it reads and writes.

    Attributes:
        step: Its `OneDeviceStep`.
        variables: List of `audit_verdict.Variable` that are compared.
        places: Maps a variable's number in the step to that in `variables`.
        dtype: The float type in which the model computes.
    """

    def __init__(self, model: keras.Model, step: OneDeviceStep) -> None:
        if step.unrepeatable:
            raise NotComparable(
                f"the step has {', '.join(step.unrepeatable)}, which may do "
                "something else when it runs again"
            )
        self.step = step
        self.dtype = _dtype(model)
        known = dict(_described(model))
        self.variables: list[audit_verdict.Variable] = []
        self.places: dict[int, int] = {}
        for number, variable in enumerate(step.variables):
            if variable is None or not _is_number(step.dtype_of(number)):
                continue
            self.places[number] = len(self.variables)
            self.variables.append(
                known.get(id(variable))
                or audit_verdict.Variable(
                    layer_costs.NO_LAYER,
                    f"variable {number}",
                    getattr(variable, "name", f"variable {number}"),
                    from_zero=True,
                )
            )

    def is_float(self, number: int) -> bool:
        """Whether a variable of the step has floats."""
        return bool(self.step.dtype_of(number).is_floating)

    def numbers(self, state: State) -> list[np.ndarray]:
        """Returns the arrays of a state that are compared; floats of NumPy's types."""
        arrays = [state[number] for number in self.places]
        return [
            one if one.dtype.kind in "biuf" else one.astype("float32")
            for one in arrays
            if one is not None
        ]


def _is_number(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool)


def _dtype(model: keras.Model) -> str:
    """Returns the float type in which a model's products are rounded."""
    dtype = distances.dtype_of(model)
    on_gpu = any(
        "GPU" in name
        for name in model.distribute_strategy.extended.worker_devices
    )
    if dtype == "float32" and on_gpu:
        if tf.config.experimental.tensor_float_32_execution_enabled():
            return "tensorfloat32"
    return dtype


def _described(
    model: keras.Model,
) -> Iterator[tuple[int, audit_verdict.Variable]]:
    """Yields the id of each variable's TensorFlow variable, and a description."""
    trainable = {id(variable) for variable in model.trainable_variables}
    metrics = {id(variable) for variable in model.metrics_variables}
    layers = dict(layers_in(model))
    slots = {id(slot): name for slot, name in training_state.slot_names(model)}
    for path, kind, variable in layer_costs.variables_by_layer(model, layers):
        layer, from_zero = path.partition("/")[2] or path, True
        if kind == "slots":
            kind = f"slot {slots.get(id(variable), variable.path)}"
        elif id(variable) in metrics:
            kind = f"metric {variable.path}"
        elif id(variable) in trainable:
            kind, from_zero = audit_verdict.TRAINABLE, False
        else:
            kind, from_zero = f"state of {path}", False
        described = audit_verdict.Variable(
            layer, kind, variable.path, from_zero
        )
        yield id(variable.value), described
