"""The one-device step, traced: the definition of what must come out."""

import contextlib
import copy
import dataclasses
import gc
import threading

import tensorflow as tf
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.framework import func_graph as func_graphs

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner import graph as graphs
from kerasmgpu.partitioner import updates
from kerasmgpu.partitioner.ir.printing import graph_text
from kerasmgpu.partitioner.passes.dump import Dump
from kerasmgpu.partitioner.rules.state import UPDATES


class Trace:
    """A function as it runs on one device.

    Args:
        function: Function of positional arguments.
        arguments: Tuple of `tf.TypeSpec`s.
        name: Its name, for people.

    Attributes:
        graph: `graph.Graph`.
        leaves: The graph's inputs that the tensors of `arguments` are, in the
            order of `tf.nest.flatten(…, expand_composites=True)`.
        dump: The `passes.dump.Dump` of the function.
        sparse: List of `Sparse`, for sparse tensors among the arguments.
        captured: Pairs of the other inputs and what they are.
        outputs: What the function returned, with symbolic tensors.
        variables: Trainable variables that it reads.
    """

    def __init__(self, function, arguments, name):
        self.name = name
        self.dump = Dump(name)
        func_graph, makes_variables = _func_graph(function, arguments, name)
        if makes_variables:
            # What code does when it makes variables, it does once.
            func_graph, _ = _func_graph(function, arguments, name)
        # Placeholders, and so the variables' handles, live as long as this.
        self._func_graph = func_graph
        graph, self.leaves, self.captured = self._read()
        self.dump("read", lambda: graph_text(graph))
        graph = updates.last_only(updates.forwarded(graph))
        graph = graphs.without_unneeded(graph)
        self.graph = graphs.without_unneeded(updates.stacked(graph))
        # Sums that are needed for updates only can then be made together.
        self.graph.nodes.sort(key=_is_late)
        self.graph.nodes = graphs.ordered(self.graph)
        self.dump("simplify", lambda: graph_text(self.graph))
        self.outputs = func_graph.structured_outputs
        self.variables = func_graph.trainable_variables
        self.sparse = list(_sparse(arguments, self.leaves))

    def _read(self):
        """The graph as it was traced, its leaves, and what it captured."""
        source = self._func_graph
        graph = graphs.read(source)
        captured = {id(inner): outer for outer, inner in source.captures}
        pairs = [
            (tensor, captured.get(id(placeholder)))
            for placeholder, tensor in zip(source.inputs, graph.inputs)
        ]
        leaves = [tensor for tensor, outer in pairs if outer is None]
        return graph, leaves, [pair for pair in pairs if pair[1] is not None]

    def without_arguments(self):
        """What happens in the function where its arguments never come.

        TensorFlow runs an operation as soon as it has what it needs. At the end
        of the data it so draws random numbers, counts and decays, before it
        knows that there is no batch.

        Returns:
            A `Trace` of the effects that need no argument, or `None`. A loop
            waits for all that it needs.
        """
        graph, leaves, captured = self._read()
        graph = _without(graph, leaves)
        if not graph.effects:
            return None
        rest = copy.copy(self)
        rest.graph = graph
        rest.leaves, rest.sparse, rest.captured = [], [], captured
        rest.name, rest.outputs = f"{self.name}_without_arguments", None
        return rest

    def packed(self, flat):
        """Tensors in the structure of what the function returned."""
        remaining = iter(flat)
        leaves = tf.nest.flatten(self.outputs, expand_composites=True)
        return tf.nest.pack_sequence_as(
            self.outputs,
            [None if leaf is None else next(remaining) for leaf in leaves],
            expand_composites=True,
        )


def _is_late(node):
    """Whether a node waits for others: an update, or the cast in front of one.

    In mixed precision a gradient is summed before it is cast.
    """
    return node.type in UPDATES or (
        node.type == "Cast" and node.inputs[0].is_narrow
    )


def _without(graph, missing):
    """The effects of a graph that happen where some of its inputs never come.

    Args:
        graph: `graph.Graph`, which is used up.
        missing: These inputs.

    Returns:
        A `Graph` without them, and without outputs.
    """
    inputs = [tensor for tensor in graph.inputs if tensor not in missing]
    missing, waiting, nodes, effects = set(missing), set(), [], []
    for node in graph.nodes:
        is_late = not waiting.isdisjoint(node.controls)
        if is_late or not missing.isdisjoint(node.inputs):
            waiting.add(node)
            missing.update(node.outputs)
            if not is_late and node.type in _BRANCHES:
                node = _branch_without(node, missing)
                is_late = node is None
            else:
                is_late = True
        if is_late:
            continue
        nodes.append(node)
        if node.is_stateful and node.type not in graphs.ONLY_LOOK:
            effects.append(node)
    return graphs.without_unneeded(graphs.Graph(nodes, inputs, [], effects))


_BRANCHES = {"Case", "If"}


def _branch_without(node, missing):
    """A branch with the effects that need nothing of what is missing, or `None`.

    Gradients are accumulated so: what is put back to zero needs no gradient.
    """
    condition, *carried = node.inputs
    if condition in missing:
        return None
    late = [n for n, tensor in enumerate(carried) if tensor in missing]
    bodies = [
        _without(body, [body.inputs[n] for n in late]) for body in node.bodies
    ]
    if not any(body.effects for body in bodies):
        return None
    branch = graphs.new_node(node.type, node.name, node.definition)
    branch.inputs = [
        condition,
        *(tensor for tensor in carried if tensor not in missing),
    ]
    branch.controls, branch.bodies = node.controls, bodies
    return branch


@dataclasses.dataclass(frozen=True)
class Sparse:
    """A sparse tensor among the arguments, by its leaves.

    Attributes:
        indices: `graph.Tensor` `[entries, rank]`.
        values: `[entries]`.
        dense_shape: `[rank]`.
        shape: What is known of its shape: a tuple of integers and `None`.
    """

    indices: graphs.Tensor
    values: graphs.Tensor
    dense_shape: graphs.Tensor
    shape: tuple


def _sparse(arguments, leaves):
    remaining = iter(leaves)
    for argument in arguments:
        parts = [
            next(remaining)
            for _ in tf.nest.flatten(argument, expand_composites=True)
        ]
        if isinstance(argument, tf.SparseTensorSpec) and argument.shape.rank:
            yield Sparse(*parts, tuple(argument.shape))


_thread = threading.local()


@contextlib.contextmanager
def done_once():
    """Variables that are made inside call for no second trace.

    For code that makes variables and does nothing else, and around which the
    function does the same whether they are there already or not.
    """
    before = getattr(_thread, "is_done_once", False)
    _thread.is_done_once = True
    try:
        yield
    finally:
        _thread.is_done_once = before


def _func_graph(function, arguments, name):
    """The trace, and whether variables were made on the way."""
    made = []

    def note(next_creator, **settings):
        if not getattr(_thread, "is_done_once", False):
            made.append(True)
        settings["initial_value"] = _lifted(settings["initial_value"])
        return next_creator(**settings)

    # A sixth of the time of a trace is Python's search for garbage, of which
    # there is none.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with tf.variable_creator_scope(note):
            func_graph = func_graphs.func_graph_from_py_func(
                name, function, arguments, {}
            )
    finally:
        if was_enabled:
            gc.enable()
    return func_graph, bool(made)


def _lifted(value):
    """A new variable's value, computed once if the trace describes it only.

    `tf.function` does so, too. Keras's Adafactor in a model that isn't built
    is an example: it makes variables of constants.
    """
    if not tf.is_symbolic_tensor(value):
        return value

    def compute():
        graph = tf.compat.v1.get_default_graph()
        try:
            return lift_to_graph.lift_to_graph([value], graph)[value]
        except lift_to_graph.UnliftableError as error:
            raise InputError(
                "A variable that a step makes can't have an initial value of "
                f"the step's data. Received: {value.name!r}, which is computed "
                "of an argument; make the variable before the step is traced."
            ) from error

    with tf.init_scope():
        return tf.compat.v1.wrap_function(compute, [])()
