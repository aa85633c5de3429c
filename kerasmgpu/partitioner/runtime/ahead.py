"""Compiles a step with XLA while its form without XLA trains.

The compiled form is written by a thread. What its clusters take is known when a
step has run: one step runs in a third form, which has the clusters' calls but
XLA doesn't compile them, and which also returns the shapes, and the integers, of
their arguments. With such arguments the thread calls each cluster, alone.
"""

import collections
import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from kerasmgpu.partitioner.ir.lowered import Cluster
from kerasmgpu.partitioner.runtime.execution import without_grappler
from kerasmgpu.partitioner.runtime.program import Emitted, Program
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step.definitions import argument, set_attributes
from kerasmgpu.partitioner.step.records import Trait, record

MOST_SHAPES = 4
"""Shapes of batches that are compiled for; others run without XLA."""

_MUST_COMPILE = "_XlaMustCompile"

_numbers = itertools.count()

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a step's inputs."""


class CantCompile(Exception):
    """Says why a program can't be compiled while it trains."""


class Ahead:
    """A program's compiled form, which is made while the program trains.

    Call `write`, `add` and `make_ready`. Then it can be called for a step: it
    runs without XLA, and notes the shapes of the batch. After `compile` and
    `use`, steps of these shapes run compiled.

    Args:
        program: The `Program`.
        with_outputs: See `Program.written`.

    Raises:
        CantCompile: If there is no such form, with the reason.
    """

    def __init__(self, program: Program, with_outputs: bool) -> None:
        if program.in_more_parts is not None:
            raise CantCompile("micro_batches='auto' may write it anew")
        if program.has_random_state:
            raise CantCompile("it has operations with a random state")
        plain = program.written(with_outputs).lowered
        if any(one.clusters for one in plain.programs()):
            raise CantCompile("it has functions that are compiled in any case")
        self._program = program.beside()
        self._with_outputs = with_outputs
        self._emitted: Emitted
        self._written: Written
        self._noting: _Noting
        self._note: _Guarded
        self._run: _Guarded
        self._compiled: set[tuple[Any, ...]] = set()
        self._noted: dict[Shapes, list[list[tf.Tensor]]] = {}
        self._used: set[Shapes] = set()
        self._is_stopped = False

    @property
    def has_outputs(self) -> bool:
        """Whether `__call__` and `note` return the step's outputs."""
        return self._with_outputs

    # While the program trains ------------------------------------------------

    def write(self) -> None:
        """Writes the compiled form; a thread can do it."""
        self._emitted = self._program.emitted(self._with_outputs)

    def add(self) -> None:
        """Adds the compiled form to TensorFlow's library; collective.

        Raises:
            CantCompile: If what a cluster takes can't be known before it runs.
        """
        lowered = self._emitted.build.program
        if not lowered.clusters:
            raise CantCompile("it has no operations that XLA compiles")
        if any(
            one.clusters for one in lowered.programs() if one is not lowered
        ):
            raise CantCompile("replicas communicate in a loop or branch of it")
        self._written = self._program.added(self._emitted, self._with_outputs)
        self._noting = _Noting(self._written)
        del self._emitted

    def make_ready(self) -> None:
        """Makes executors of both forms that take a batch; a thread can do it."""
        leaves = self._leaves()
        self._note = _Guarded(self._noting.written, leaves)
        self._note.make_ready()
        self._run = _Guarded(self._written, leaves)

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs a step: compiled, if it is for its shapes.

        Args:
            tensors: See `Written.__call__`.
        """
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        if shapes in self._used:
            return self._run(tensors)
        outputs = self._note(tensors)
        number = len(outputs) - self._noting.number
        if len(self._noted) < MOST_SHAPES and shapes not in self._noted:
            self._noted[shapes] = self._noting.arguments(outputs[number:])
        return outputs[:number]

    @property
    def pending(self) -> set[Shapes]:
        """The shapes of batches that were noted, and aren't compiled for."""
        return self._noted.keys() - self._used

    def compile(self, pending: set[Shapes]) -> None:
        """Compiles for some batches that were noted; a thread should do it.

        Raises:
            tf.errors.OpError: What XLA can't compile, or if memory runs out.
        """
        clusters = self._written.lowered.clusters
        for shapes in sorted(pending):
            for cluster, tensors in zip(clusters, self._noted[shapes]):
                if self._is_stopped:
                    return
                self._compile(cluster, tensors)
        self._run.make_ready()

    def use(self, compiled: set[Shapes]) -> None:
        """Uses what `compile` has made, from the next step on."""
        self._used |= compiled
        self._noted.update(dict.fromkeys(compiled, []))  # Frees the tensors.

    def stop(self) -> None:
        """Ends `compile` after the cluster that it is at."""
        self._is_stopped = True

    # Parts -------------------------------------------------------------------

    def _leaves(self) -> list[tuple[tf.TensorSpec, str]]:
        """Returns the type and the device of each tensor that a step takes."""
        mesh, leaves = self._program.replicas.mesh, []
        for leaf, is_share, width in zip(
            self._program.trace.leaves,
            self._program.in_shares,
            self._written.widths,
        ):
            rank = None if leaf.shape is None else len(leaf.shape)
            shape = None if rank is None else [None] * rank
            for place in range(width):
                device = mesh.host
                if is_share:
                    device = mesh.devices[place * mesh.micro_batches]
                leaves.append((tf.TensorSpec(shape, leaf.dtype), device))
        return leaves

    def _compile(self, cluster: Cluster, tensors: list[tf.Tensor]) -> None:
        given = self._noting.given(cluster, tensors)
        key = (
            cluster.device,
            cluster.function,
            *((one.shape, one.tobytes()) for one in given),
        )
        if key in self._compiled:
            return
        with tf.device(cluster.device):
            arguments = [
                tf.constant(one)
                if isinstance(one, np.ndarray)
                else tf.raw_ops.Empty(shape=one.shape, dtype=one.dtype)
                for one in given
            ]
        self._noting.alone(cluster)(arguments)
        self._compiled.add(key)


@dataclasses.dataclass(frozen=True)
class _Any:
    """Shape and type of a tensor whose content doesn't matter."""

    shape: tuple[int, ...]
    dtype: tf.DType

    def tobytes(self) -> None:
        """What XLA's choice depends on: nothing but the shape."""


class _Noting:
    """The form of a written function that XLA doesn't compile, and that notes.

    Args:
        written: `Written` of the compiled form.

    Attributes:
        written: `Written` of this form. It returns more tensors behind the
            outputs: for each argument of a cluster its shape or, of integers
            and of what a loop takes, the argument.
        number: Integer, how many more.
    """

    def __init__(self, written: Written) -> None:
        self._compiled = written
        functions = {one.signature.name: one for one in written.library}
        main = function_pb2.FunctionDef()
        main.CopyFrom(written.library[-1])
        main.signature.name += "_noting"
        nodes = {node.name: node for node in main.node_def}
        plain: dict[str, function_pb2.FunctionDef] = {}
        self._types: dict[str, list[tf.DType]] = {}
        self._calls: dict[str, node_def_pb2.NodeDef] = {}
        self._are_whole = collections.defaultdict(list)
        self._places: list[list[int]] = []
        places: dict[tuple[str, bool], int] = {}
        types: list[tf.DType] = []
        for cluster in written.lowered.clusters:
            function, call = functions[cluster.function], nodes[cluster.call]
            self._calls[cluster.call] = copy.deepcopy(call)
            inputs = function.signature.input_arg
            self._types[cluster.function] = [
                tf.as_dtype(one.type) for one in inputs
            ]
            if cluster.function not in plain:
                plain[cluster.function] = copy.deepcopy(function)
                plain[cluster.function].signature.name += "_plain"
                del plain[cluster.function].attr[_MUST_COMPILE]
            call.attr["f"].func.name += "_plain"
            del call.attr[_MUST_COMPILE]
            has_loops = any(
                Trait.LOOP in record(type).traits for type in cluster.operations
            )
            own = []
            for reference, dtype in zip(
                call.input, self._types[cluster.function]
            ):
                is_whole = has_loops or not dtype.is_floating
                if (reference, is_whole) not in places:
                    places[reference, is_whole] = len(types)
                    types.append(dtype if is_whole else tf.int32)
                    name = f"noted_{len(types)}"
                    main.signature.output_arg.append(argument(name, types[-1]))
                    main.ret[name] = reference
                    if not is_whole:
                        node = main.node_def.add(
                            name=name,
                            op="Shape",
                            input=[reference],
                            device=cluster.device,
                        )
                        set_attributes(node, {"T": dtype, "out_type": tf.int32})
                        main.ret[name] = f"{name}:output:0"
                own.append(places[reference, is_whole])
                self._are_whole[cluster.call].append(is_whole)
            self._places.append(own)
        self.number = len(types)
        self.written = written.variant([*plain.values(), main], types)

    def arguments(self, noted: Sequence[tf.Tensor]) -> list[list[tf.Tensor]]:
        """Returns what was noted of each argument of each cluster."""
        return [[noted[place] for place in own] for own in self._places]

    def given(
        self, cluster: Cluster, tensors: Sequence[tf.Tensor]
    ) -> list["np.ndarray | _Any"]:
        """Returns the arguments of a cluster, from what was noted of them."""
        given: list[np.ndarray | _Any] = []
        for tensor, dtype, is_whole in zip(
            tensors,
            self._types[cluster.function],
            self._are_whole[cluster.call],
        ):
            array = tensor.numpy()
            given.append(array if is_whole else _Any(tuple(array), dtype))
        return given

    def alone(self, cluster: Cluster) -> Written:
        """Returns a function of a cluster's arguments that only calls it."""
        function = function_pb2.FunctionDef()
        function.signature.name = f"kerasmgpu_ahead_{next(_numbers)}"
        node = function.node_def.add()
        node.CopyFrom(self._calls[cluster.call])
        del node.input[:]
        for number, dtype in enumerate(self._types[cluster.function]):
            name = f"argument_{number}"
            node.input.append(name)
            function.signature.input_arg.append(argument(name, dtype))
        # TensorFlow prunes a call of which nothing is returned.
        dtype = tf.as_dtype(node.attr["Tout"].list.type[0])
        function.signature.output_arg.append(argument("output", dtype))
        function.ret["output"] = f"{node.name}:output:0"
        return Written(
            [function], [], [dtype], [], [], True, self._compiled.lowered
        )


class _Guarded:
    """Calls a written function, whose executors can be made before.

    TensorFlow makes them in the first call. In a call whose inputs fail it makes
    them, and runs no side effect, since these wait for a step's inputs.

    Args:
        written: The `Written`.
        leaves: Type and device of each tensor that it takes.
    """

    def __init__(
        self, written: Written, leaves: Sequence[tuple[tf.TensorSpec, str]]
    ) -> None:
        self._written = written
        self._leaves = leaves
        self._communicates = any(
            node.op.startswith(("Collective", "Nccl"))
            for function in written.library
            for node in function.node_def
        )
        concrete = tf.function(
            self._traced, autograph=False
        ).get_concrete_function(
            tf.TensorSpec([], tf.bool), *[leaf for leaf, _ in leaves]
        )
        self._call: Callable[[list[tf.Tensor]], list[tf.Tensor]] = (
            functools.partial(
                concrete._call_flat, captured_inputs=concrete.captured_inputs
            )
        )
        self._go = tf.constant(True)

    def make_ready(self) -> None:
        """Makes the executors."""
        tensors = []
        for leaf, device in self._leaves:
            with tf.device(device):
                tensors.append(
                    tf.zeros([0] * (leaf.shape.rank or 0), leaf.dtype)
                )
        with without_grappler():
            try:
                self._call([tf.constant(False), *tensors])
            except tf.errors.InvalidArgumentError as error:
                if _NO_ERROR not in str(error):
                    raise

    def __call__(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Runs the function; see `Written.__call__`."""
        with without_grappler():
            return self._call([self._go, *tensors])

    def _traced(self, goes: tf.Tensor, *tensors: tf.Tensor) -> list[tf.Tensor]:
        check = tf.debugging.Assert(goes, [_NO_ERROR])

        def wait(tensor: tf.Tensor, device: str) -> tf.Tensor:
            with tf.device(device), tf.control_dependencies([check]):
                return tf.identity(tensor)

        passed = [
            wait(one, device) for one, (_, device) in zip(tensors, self._leaves)
        ]
        captured = self._written.captured
        if self._communicates:
            # Weights are gathered before there is a batch.
            captured = [wait(one, one.device) for one in captured]
        return self._written(passed, captured)


_NO_ERROR = "kerasmgpu makes a step ready before it runs: this is no error"
