"""Partitions a one-device function over replicas; caches its traces."""

import contextlib
import weakref
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Sequence,
)
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime import replaced, report
from kerasmgpu.partitioner.runtime.making import making
from kerasmgpu.partitioner.runtime.out_of_memory import Repeated
from kerasmgpu.partitioner.runtime.program import BeforeCompiling, Program
from kerasmgpu.partitioner.runtime.tracing import (
    Trace,
    without_garbage_collection,
)
from kerasmgpu.partitioner.step.recompute import Again

if TYPE_CHECKING:
    from kerasmgpu.partitioner.lowering.compute_time import ComputeTime
    from kerasmgpu.partitioner.lowering.replicas import Replicas

_Programs = dict[tuple[int, tuple[bool, ...] | None], Program]
"""Of one trace, by micro-batches and by which leaves come in shares."""


class Partitioned:
    """A function that is traced on one device and partitioned over replicas.

    It is retraced for new structures, types and shapes of arguments, as
    `tf.function(reduce_retracing=True)` is.

    Args:
        one_device: Function that returns a context in which the function is
            traced.
        micro_batches: Parts in which a replica works through its rows, one
            after the other.
        repeats: Whether a call that runs out of memory is run again in twice
            as many parts.
        recompute: Functions of a `Program` that return which nodes of its trace
            run again instead of keeping their outputs, or `None`; each is
            called with what the ones before have made.
    """

    def __init__(
        self,
        function: Callable,
        replicas: "Replicas",
        one_device: Callable[
            [], contextlib.AbstractContextManager
        ] = contextlib.nullcontext,
        name: str | None = None,
        jit_compile: bool = False,
        compute_time: "ComputeTime | None" = None,
        micro_batches: int = 1,
        repeats: bool = False,
        before_compiling: BeforeCompiling | None = None,
        recompute: Sequence[Callable[[Program], Again | None]] = (),
    ) -> None:
        self.micro_batches = micro_batches
        self._recompute = recompute
        self._repeats = repeats
        self._before_compiling = before_compiling
        self._function = function
        self._replicas = replicas
        self._one_device = one_device
        self._name = name or str(getattr(function, "__name__", "function"))
        self._jit_compile = jit_compile
        self._compute_time = compute_time
        self._programs: dict[tuple, list[tuple[list, _Programs]]] = {}
        self._replaced = replaced.count()

    def __call__(self, *arguments: Any) -> Any:
        """Runs the function on all replicas.

        Args:
            *arguments: Nests of arrays, tensors and `Shares`, which are sharded
                by rows, and of other values, which are passed unchanged.
        """
        program, tensors = self.prepared(
            *tf.nest.map_structure(as_tensor, arguments)
        )
        run = self.repeated(program)
        return program.trace.packed(run(tensors))

    def repeated(self, program: Program) -> Callable[[list], list]:
        """Returns a function that runs a program on a list of its inputs.

        If it runs out of memory, and has `in_more_parts`, it is repeated; see
        `Repeated`.
        """
        written = program.written()
        run: Callable[[list], list] = written
        if program.in_more_parts is not None:
            run = Repeated(program, written)

        def call(tensors: list) -> list:
            with program.trace.with_places(), written.running():
                return run(tensors)

        return call

    def prepared(self, *arguments: Any) -> tuple[Program, list[tf.Tensor]]:
        """Returns the program for some arguments, without arrays, and its inputs."""
        specification = tf.nest.map_structure(_specification, arguments)
        tensors, in_shares, shapes = [], [], []
        for leaf in tf.nest.flatten(arguments):
            if isinstance(leaf, Shares):
                tensors += leaf.values
                in_shares.append(True)
                shapes.append((leaf.rows, *leaf.values[0].shape[1:]))
            elif isinstance(leaf, _TENSORS):
                parts = tf.nest.flatten(leaf, expand_composites=True)
                tensors += parts
                in_shares += [False] * len(parts)
                shapes += [tuple(part.shape or ()) for part in parts]
        program = self.program(specification, tuple(in_shares), shapes)
        return program, tensors

    def program(
        self,
        specification: Any,
        in_shares: tuple[bool, ...] | None = None,
        first_batch: Sequence[Sequence[int | None]] | None = None,
    ) -> Program:
        """Returns the program for some types of arguments, traced if it is new.

        Args:
            specification: Tuple of nests: a `tf.TypeSpec` for every tensor;
                other leaves are passed as they are.
            first_batch: See `Program`; it only matters for a new program.
        """
        with making:
            return self._known(specification, in_shares, first_batch)

    def _known(
        self,
        specification: Any,
        in_shares: tuple[bool, ...] | None,
        first_batch: Sequence[Sequence[int | None]] | None,
    ) -> Program:
        self._forget_stale()
        if in_shares is not None and not any(in_shares):
            in_shares = None  # One key for arguments without shares.
        flat = tf.nest.flatten(specification)
        structure = tf.nest.map_structure(lambda leaf: 0, specification)
        # As for `tf.function`: captured tensors can differ in another graph.
        graph = None
        if not tf.executing_eagerly():
            graph = weakref.ref(tf.compat.v1.get_default_graph())
        kinds = map(_kind_of_leaf, flat)
        key = (repr(structure), graph, *kinds)
        way = self.micro_batches, in_shares
        known = self._programs.setdefault(key, [])
        for given, programs in known:
            if all(map(_is_compatible, given, flat)):
                if way not in programs:
                    # One device has one trace, however its batches are divided.
                    trace = next(iter(programs.values())).trace.anew()
                    programs[way] = self._planned(
                        trace, specification, in_shares, first_batch
                    )
                return programs[way]
        if known:
            flat = [
                _generalized(one, two) for one, two in zip(known[-1][0], flat)
            ]
        specification = tf.nest.pack_sequence_as(specification, flat)
        with without_garbage_collection():
            trace = self._trace(specification)
        program = self._planned(trace, specification, in_shares, first_batch)
        known.append((flat, {way: program}))
        return program

    def forget(self) -> None:
        """Forgets all programs: the function does something else from now on."""
        self._programs.clear()

    def _forget_stale(self) -> None:
        """Forgets programs of variables that have been made anew."""
        if self._replaced == replaced.count():
            return
        self._replaced = replaced.count()
        for known in self._programs.values():
            known[:] = [
                (given, programs)
                for given, programs in known
                if not next(iter(programs.values())).trace.is_stale
            ]

    @property
    def programs(self) -> list[Program]:
        """List of all cached programs."""
        return [
            program
            for known in self._programs.values()
            for _, programs in known
            for program in programs.values()
        ]

    def _planned(
        self,
        trace: Trace,
        specification: Any,
        in_shares: tuple[bool, ...] | None,
        first_batch: Sequence[Sequence[int | None]] | None,
    ) -> Program:
        def in_more_parts(micro_batches: int) -> Program:
            self.micro_batches = max(micro_batches, self.micro_batches)
            return self.program(specification, in_shares, first_batch)

        agreement = self._replicas.agreement
        if first_batch is not None and agreement is not None:
            # Workers must make the same plans, and their batches may differ.
            first_batch = agreement.shapes_of_first(first_batch)

        def planned(trace: Trace) -> Program:
            return Program(
                trace,
                self._replicas.split(self.micro_batches),
                in_shares,
                self._jit_compile,
                self._compute_time,
                first_batch,
                in_more_parts if self._repeats else None,
                log=report.log,
                before_compiling=self._before_compiling,
            )

        with without_garbage_collection():
            return recomputing(planned(trace), self._recompute, planned)

    def trace_alone(self, specification: Any) -> None:
        """Traces the function for some types, and keeps nothing of it.

        A program for several shapes has sizes that aren't known, so that the
        function didn't see in the trace what doesn't fit. Here it raises.
        """
        with without_garbage_collection():
            self._trace(specification)

    def _trace(self, specification: Any) -> Trace:
        leaves = tf.nest.flatten(specification)
        given = [isinstance(leaf, tf.TypeSpec) for leaf in leaves]

        def on_one_device(*tensors: Any) -> Any:
            remaining = iter(tensors)
            arguments = tf.nest.pack_sequence_as(
                specification,
                [
                    next(remaining) if is_given else leaf
                    for leaf, is_given in zip(leaves, given)
                ],
            )
            with self._one_device():
                outputs = self._function(*arguments)
                # Variables are read here, where each has one copy.
                return tf.nest.map_structure(_read, outputs)

        types = tuple(leaf for leaf in leaves if isinstance(leaf, tf.TypeSpec))
        return Trace(on_one_device, types, self._name)


def recomputing(
    program: Program,
    choices: Iterable[Callable[[Program], Again | None]],
    planned: Callable[[Trace], Program],
) -> Program:
    """Returns the program that computes again what each of `choices` returns.

    Args:
        choices: See `Partitioned`.
        planned: Function that returns the program of a trace.
    """
    for choose in choices:
        again = choose(program)
        if again is not None:
            program = planned(program.trace.running_again(again))
    return program


class Shares:
    """A tensor whose rows are sharded over the replicas of this process.

    Args:
        rows: Number of rows of the replicas of all processes; `None` if it is
            unknown.
    """

    def __init__(
        self, values: Iterable[tf.Tensor], rows: int | None = None
    ) -> None:
        self.values = list(values)
        self.rows = rows


def joined(shares: Sequence[Any], are_all: bool = False) -> Any:
    """Joins the replicas' values of a leaf of a batch, as a program takes them.

    Args:
        are_all: Whether there are no replicas in other processes; only then
            `Shares.rows` can be known.

    Returns:
        `Shares` of tensors; one tensor of sparse or ragged ones, concatenated.
        Of `None`s and `tf.experimental.Optional`s, which hold no data, the
        first; a single value of an extension type unchanged.

    Raises:
        InputError: If there are several values of an extension type.
    """
    if shares[0] is None or isinstance(shares[0], tf.experimental.Optional):
        return shares[0]
    if isinstance(shares[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(shares))
    if isinstance(shares[0], tf.RaggedTensor):
        return tf.concat(list(shares), 0)
    if isinstance(shares[0], tf.experimental.ExtensionType):
        if len(shares) == 1:
            return shares[0]
        raise InputError(
            "Shares of an extension type can't be concatenated. Received: a "
            f"batch of a distributed data set with a {type(shares[0]).__name__}"
            "; pass the step batches of the data set itself, which it shards."
        )
    rows = None
    if are_all and shares[0].shape.rank:
        sizes = [share.shape[0] for share in shares]
        rows = None if None in sizes else sum(sizes)
    return Shares(shares, rows)


_TENSORS = (
    tf.Tensor,
    tf.SparseTensor,
    tf.RaggedTensor,
    tf.experimental.ExtensionType,
)


def as_tensor(leaf: Any) -> Any:
    """Converts an array to a tensor; returns other leaves unchanged."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return tf.convert_to_tensor(leaf)
    return leaf


def with_tensors(arguments: Any, tensors: Iterable[tf.Tensor]) -> Any:
    """Returns arguments with their tensors replaced.

    Args:
        arguments: Nest without `Shares`.
        tensors: Tensors in the order of those that `prepared` returns.
    """
    remaining = iter(tensors)

    def other(leaf: Any) -> Any:
        if not isinstance(leaf, _TENSORS):
            return leaf
        parts = tf.nest.flatten(leaf, expand_composites=True)
        return tf.nest.pack_sequence_as(
            leaf, [next(remaining) for _ in parts], expand_composites=True
        )

    return tf.nest.map_structure(other, arguments)


def _specification(leaf: Any) -> Any:
    """Returns the `tf.TypeSpec` of a tensor; leaves of other types unchanged.

    For `Shares`, it is that of the whole tensor.
    """
    if isinstance(leaf, Shares):
        first = leaf.values[0]
        rows = [leaf.rows] if first.shape.rank else []
        return tf.TensorSpec([*rows, *first.shape[1:]], first.dtype)
    if isinstance(leaf, _TENSORS):
        return tf.type_spec_from_value(leaf)
    return leaf


def _kind_of_leaf(leaf: Any) -> Hashable:
    """Returns the trace-cache key of a leaf.

    For dense and sparse tensors it has the rank, but not the shape: programs of
    one key are generalised to several shapes.
    """
    if isinstance(leaf, (tf.TensorSpec, tf.SparseTensorSpec)):
        return type(leaf), leaf.dtype, leaf.shape.rank
    return leaf if isinstance(leaf, tf.TypeSpec) else _Same(leaf)


def _read(leaf: Any) -> Any:
    is_variable = hasattr(leaf, "assign") and hasattr(leaf, "dtype")
    return tf.convert_to_tensor(leaf) if is_variable else leaf


class _Same:
    """Trace-cache key of a leaf that is no tensor.

    Args:
        value: The leaf. Plain values are compared by type and value, other
            objects by identity.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        try:
            self._key = type(value), hash(value)
        except TypeError:
            self._key = type(value), id(value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or self._key != other._key:
            return False
        return self._value is other._value or (
            isinstance(self._value, _VALUES) and self._value == other._value
        )


_VALUES = (str, bytes, int, float, complex, tuple, frozenset, tf.DType)


def _is_compatible(given: Any, leaf: Any) -> bool:
    if isinstance(given, tf.TypeSpec):
        return leaf.is_subtype_of(given)
    return True


def _generalized(one: Any, two: Any) -> Any:
    if isinstance(one, tf.TypeSpec) and one != two:
        return one.most_specific_common_supertype([two])
    return one
