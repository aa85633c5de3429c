"""Functions that replicas run together, from ones that run on one device."""

import contextlib
import weakref

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.program import Program
from kerasmgpu.partitioner.tracing import Trace


class Partitioned:
    """A function that is traced as it runs on one device, and partitioned.

    It is traced anew for other structures and types of arguments, and for other
    shapes, as `tf.function(reduce_retracing=True)` is.

    Args:
        function: Function of positional arguments.
        replicas: `replicas.Replicas`.
        one_device: Function that returns a context in which the function is
            traced.
        name: Its name, for people.
        jit_compile: See `program.Program`.
        own_time: See `program.Program`.
    """

    def __init__(
        self,
        function,
        replicas,
        one_device=contextlib.nullcontext,
        name=None,
        jit_compile=False,
        own_time=None,
    ):
        self._function = function
        self._replicas = replicas
        self._one_device = one_device
        self._name = name or getattr(function, "__name__", "function")
        self._jit_compile = jit_compile
        self._own_time = own_time
        self._programs = {}

    def __call__(self, *arguments):
        """Calls the function.

        Args:
            *arguments: Nests of arrays, tensors and `Shares`, which are split
                by rows, and of anything else, which is passed as it is.

        Returns:
            What the function returns for the whole batch.
        """
        program, tensors = self.prepared(
            *tf.nest.map_structure(as_tensor, arguments)
        )
        return program.trace.packed(program.written()(tensors))

    def prepared(self, *arguments):
        """What is to be called for some arguments.

        Args:
            *arguments: See `__call__`; without arrays.

        Returns:
            The `Program`, and a list of the tensors that it takes.
        """
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

    def program(self, specification, in_shares=None, first_batch=None):
        """The program for arguments of this kind.

        Args:
            specification: Tuple of nests: a `tf.TypeSpec` for every tensor;
                other leaves are passed as they are.
            in_shares: See `Program`.
            first_batch: See `Program`; it only matters for a new program.

        Returns:
            A `Program`.
        """
        if in_shares is not None and not any(in_shares):
            in_shares = None  # However the arguments were given.
        flat = tf.nest.flatten(specification)
        structure = tf.nest.map_structure(lambda leaf: 0, specification)
        # As for `tf.function`: in another graph, what the function closes over
        # may be other tensors.
        graph = None
        if not tf.executing_eagerly():
            graph = weakref.ref(tf.compat.v1.get_default_graph())
        key = (repr(structure), in_shares, graph, *map(_kind_of_leaf, flat))
        known = self._programs.setdefault(key, [])
        for given, program in known:
            if all(map(_is_compatible, given, flat)):
                return program
        if known:
            flat = [
                _generalized(one, two) for one, two in zip(known[-1][0], flat)
            ]
        specification = tf.nest.pack_sequence_as(specification, flat)
        program = self._traced(specification, in_shares, first_batch)
        known.append((flat, program))
        return program

    @property
    def programs(self):
        """List of all programs that were made so far."""
        return [
            program for known in self._programs.values() for _, program in known
        ]

    def _traced(self, specification, in_shares, first_batch):
        leaves = tf.nest.flatten(specification)
        given = [isinstance(leaf, tf.TypeSpec) for leaf in leaves]

        def on_one_device(*tensors):
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
                # A variable is read here, where it has one copy.
                return tf.nest.map_structure(_read, outputs)

        types = tuple(leaf for leaf in leaves if isinstance(leaf, tf.TypeSpec))
        trace = Trace(on_one_device, types, self._name)
        if self._replicas.total > self._replicas.num:
            first_batch = None  # Workers may have other batches.
        return Program(
            trace,
            self._replicas,
            in_shares,
            self._jit_compile,
            self._own_time,
            first_batch,
        )


class Shares:
    """A tensor of which each replica of this process has its rows.

    Args:
        values: List with one tensor per replica, in their order.
        rows: Number of rows of the replicas of all processes, where it is
            known.
    """

    def __init__(self, values, rows=None):
        self.values = list(values)
        self.rows = rows


def joined(shares, are_all=False):
    """Shares of a leaf of a batch, as a program takes them.

    Args:
        shares: List with one value per replica.
        are_all: Whether there are no replicas in other processes.

    Returns:
        `Shares` of tensors; sparse and ragged ones are put together. What
        holds no data (`None`, a `tf.experimental.Optional`) is as it was.
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
            "Shares of an extension type can't be put together. Received: a "
            f"batch of a distributed data set with a {type(shares[0]).__name__}"
            "; give the step the data set's own batches instead, which it "
            "shares out."
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


def as_tensor(leaf):
    """A leaf of arguments; arrays become tensors."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return tf.convert_to_tensor(leaf)
    return leaf


def with_tensors(arguments, tensors):
    """Arguments with other tensors in the place of theirs.

    Args:
        arguments: Nest.
        tensors: List of what `prepared` returned for it, or of tensors alike.
    """
    remaining = iter(tensors)

    def other(leaf):
        if not isinstance(leaf, _TENSORS):
            return leaf
        parts = tf.nest.flatten(leaf, expand_composites=True)
        return tf.nest.pack_sequence_as(
            leaf, [next(remaining) for _ in parts], expand_composites=True
        )

    return tf.nest.map_structure(other, arguments)


def _specification(leaf):
    """The `tf.TypeSpec` of a tensor; other leaves as they are."""
    if isinstance(leaf, Shares):
        first = leaf.values[0]
        rows = [leaf.rows] if first.shape.rank else []
        return tf.TensorSpec([*rows, *first.shape[1:]], first.dtype)
    if isinstance(leaf, _TENSORS):
        return tf.type_spec_from_value(leaf)
    return leaf


def _kind_of_leaf(leaf):
    """What must be the same for leaves to share a trace, but for the shape."""
    if isinstance(leaf, (tf.TensorSpec, tf.SparseTensorSpec)):
        return type(leaf), leaf.dtype, leaf.shape.rank
    return leaf if isinstance(leaf, tf.TypeSpec) else _Same(leaf)


def _read(leaf):
    is_variable = hasattr(leaf, "assign") and hasattr(leaf, "dtype")
    return tf.convert_to_tensor(leaf) if is_variable else leaf


class _Same:
    """A value of which each other one is traced anew.

    Args:
        value: The value; two are the same if they are equal and of one type, or
            if they are one object that has no hash.
    """

    def __init__(self, value):
        self._value = value
        try:
            self._key = type(value), hash(value)
        except TypeError:
            self._key = type(value), id(value)

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other):
        if not isinstance(other, _Same) or self._key != other._key:
            return False
        return self._value is other._value or (
            isinstance(self._value, _VALUES) and self._value == other._value
        )


_VALUES = (str, bytes, int, float, complex, tuple, frozenset, tf.DType)


def _is_compatible(given, leaf):
    if isinstance(given, tf.TypeSpec):
        return leaf.is_subtype_of(given)
    return True


def _generalized(one, two):
    if isinstance(one, tf.TypeSpec) and one != two:
        return one.most_specific_common_supertype([two])
    return one
