"""Partitions any function of tensors over devices.

    step = kerasmgpu.partition(train_step, num_replicas=2)
    loss = step(images, labels)

The function is traced once, as it runs on one device, and the trace is
partitioned like a Keras model's step: row-wise operations run on each replica's
shard, reductions over rows become all-reduces, and everything else gathers its
inputs. So its outputs and its variables are those of one device.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import tensorflow as tf

from kerasmgpu.engine import devices as device_choice
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.joint_calls import joint_calls
from kerasmgpu.engine.private_names import tape
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
)
from kerasmgpu.partitioner.runtime.function import (
    Partitioned,
    as_tensor,
    with_tensors,
)
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.strategies import MirroredStrategy

_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def partition(
    fn: _Function,
    *,
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
    jit_compile: bool = False,
) -> _Function: ...


@overload
def partition(
    fn: None = None,
    *,
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
    jit_compile: bool = False,
) -> Callable[[_Function], _Function]: ...


@checked_arguments
def partition(
    fn: Callable[..., Any] | None = None,
    *,
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
    jit_compile: bool = False,
) -> Callable[..., Any]:
    """Runs a function on several devices, with the results of one device.

    The result is called like `fn`, eagerly or in a `tf.function`. Arrays and
    tensors are split along their first axis; the partitioner derives which
    other values can be split. Any function is allowed: it may average over the
    batch, sort it, loop, draw random numbers and assign variables. The typical
    use is a whole training step with its `tf.GradientTape` and optimizer. The
    function is also differentiable; the backward pass recomputes the forward
    pass.

    In the scope of a kerasmgpu strategy the function runs on the strategy's
    replicas, and variables created there have a copy on each. Other variables
    stay on their device, and are sent to the replicas when they are read.

    Args:
        fn: Function of nests of tensors and of other values. Without it a
            decorator is returned.
        num_replicas: Number of devices. Default: all GPUs; with no GPU, all
            logical CPU devices.
        devices: Names such as `["GPU:0", "GPU:2"]`, instead of `num_replicas`.
        virtual_devices: Number of logical CPU devices to make and use.
        jit_compile: Whether XLA compiles each device's part between
            collectives.

    Returns:
        A function like `fn`. Arrays become tensors; other arguments are as in
        a `tf.function`: each new value is traced.

    Raises:
        InputError: If `fn` is not a function or a device is not available.

    Example:

    ```python
    w = tf.Variable([[2.0]])

    @kerasmgpu.partition(num_replicas=2)
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - y) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    print(step([[1.0], [2.0], [3.0]], [[0.0], [0.0], [0.0]]))  # 18.67
    ```
    """
    chosen: dict[str, Any] = dict(
        num_replicas=num_replicas,
        devices=devices,
        virtual_devices=virtual_devices,
    )
    if fn is None:
        return lambda fn: partition(fn, **chosen, jit_compile=jit_compile)
    if not callable(fn):
        raise InputError(
            f"partition needs a function. Received: {fn!r}; give the function "
            "itself, not what it returns."
        )
    current = tf.distribute.get_strategy()
    if is_ours(current):
        given = {
            name: what for name, what in chosen.items() if what is not None
        }
        if given:
            raise InputError(
                "In a strategy's scope, partition uses the strategy's replicas. "
                f"Received: {given}; omit it, or call partition outside of the "
                "scope."
            )
        make = functools.partial(current.partitioned, jit_compile=jit_compile)
        return PartitionedFunction(fn, make, current.scope)
    names = device_choice.choose(**chosen)
    make = functools.partial(
        Partitioned,
        replicas=MirroredStrategy(names).replicas,
        jit_compile=jit_compile,
    )
    return PartitionedFunction(fn, make, contextlib.nullcontext)


@checked_arguments
def make_parallel(
    fn: Callable[..., Any],
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
    **tensors: Any,
) -> Any:
    """Partitions a function and, with keyword arguments, calls it.

    Args:
        fn: See `partition`.
        num_replicas: See `partition`.
        devices: See `partition`.
        virtual_devices: See `partition`.
        **tensors: Keyword arguments of `fn`, with which it is called.

    Returns:
        A function like `fn`; with `tensors`, its result.

    Example:

    ```python
    kerasmgpu.make_parallel(tf.nn.softmax, 2, logits=logits)
    ```
    """
    parallel = partition(
        fn,
        num_replicas=num_replicas,
        devices=devices,
        virtual_devices=virtual_devices,
    )
    return parallel(**tensors) if tensors else parallel


class PartitionedFunction:
    """Calls a function partitioned; `partition` returns it.

    Args:
        partitioned: Function that takes a function of one nest, and its name
            as `name`, and returns a
            `partitioner.runtime.function.Partitioned`.
        scope: Function that returns the context in which functions are traced.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        partitioned: Callable[..., Partitioned],
        scope: Callable[[], contextlib.AbstractContextManager[Any]],
    ) -> None:
        self._fn = fn
        self._make = partitioned
        self._scope = scope
        self._name = getattr(fn, "__name__", type(fn).__name__)
        self._partitioned = partitioned(self._traced, name=self._name)
        self._backward: weakref.WeakKeyDictionary[Any, Any] = (
            weakref.WeakKeyDictionary()
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        current = tf.distribute.get_strategy()
        if is_ours(current) and current.extended.is_one_device:
            # Inside a step's one-device trace, which is partitioned whole.
            return self._fn(*args, **kwargs)
        if tf.executing_eagerly() and is_ours(current):
            if current.num_workers > 1:
                joint_calls.note(f"partition of {self._name}")
        inputs = tf.nest.map_structure(as_tensor, (args, kwargs))
        with self._scope():
            program, tensors = self._partitioned.prepared(inputs)
        captured = [
            outer
            for _, outer in program.trace.captured
            if outer.dtype.is_floating or outer.dtype.is_complex
        ]

        @tf.custom_gradient
        @tf.autograph.experimental.do_not_convert
        def run(*sources: tf.Tensor) -> Any:
            for variable in program.trace.variables:
                tape.variable_accessed(variable)
            call = self._partitioned.repeated(program)
            outputs = call(list(sources[: len(tensors)]))

            def gradient(
                *output_gradients: tf.Tensor,
                variables: Sequence[tf.Variable] = (),
            ) -> Any:
                backward = self._backward_of(
                    program, inputs, captured, list(variables)
                )
                gradients = backward(
                    list(sources[: len(tensors)]), list(output_gradients)
                )
                if not variables:
                    return gradients
                return gradients[: len(sources)], gradients[len(sources) :]

            return outputs, gradient

        return program.trace.packed(run(*tensors, *captured))

    def _traced(self, inputs: Any) -> Any:
        args, kwargs = inputs

        @tf.function  # Applies AutoGraph.
        def traced() -> Any:
            return self._fn(*args, **kwargs)

        return traced()

    def _backward_of(
        self,
        program: Program,
        inputs: Any,
        captured: list[tf.Tensor],
        variables: list[tf.Variable],
    ) -> "PartitionedFunction":
        """Returns the partitioned backward function of a program; cached.

        The function maps input tensors, and gradients of the program's outputs,
        to gradients of these tensors, of captured tensors and of variables.
        """
        if program not in self._backward:

            def backward(
                tensors: list[tf.Tensor], output_gradients: list[tf.Tensor]
            ) -> Any:
                given = with_tensors(inputs, tensors)
                with tf.GradientTape() as recorded:
                    recorded.watch([t for t in tensors if _is_smooth(t)])
                    recorded.watch(captured)
                    outputs = self._traced(given)
                pairs = [
                    (output, given)
                    for output, given in zip(
                        tf.nest.flatten(outputs, expand_composites=True),
                        output_gradients,
                    )
                    if _is_smooth(output)
                ]
                return recorded.gradient(
                    [output for output, _ in pairs],
                    [*tensors, *captured, *variables],
                    [given for _, given in pairs],
                )

            self._backward[program] = PartitionedFunction(
                backward, self._make, self._scope
            )
        return self._backward[program]


def _is_smooth(tensor: Any) -> bool:
    return tensor.dtype.is_floating or tensor.dtype.is_complex
