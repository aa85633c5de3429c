"""Writes the function in which replicas run a planned graph together."""

import tensorflow as tf

from kerasmgpu.partitioner import bodies, empty_shares
from kerasmgpu.partitioner.compilation import compile_stretches
from kerasmgpu.partitioner.conversions import converted
from kerasmgpu.partitioner.facts import is_known
from kerasmgpu.partitioner.graph import MUST_COMPILE, ONLY_LOOK
from kerasmgpu.partitioner.host_sizes import HostSizes
from kerasmgpu.partitioner.kinds import REPLICATED, Own
from kerasmgpu.partitioner.places import HOST, OnEachPlace
from kerasmgpu.partitioner.rules import elementwise, state, table
from kerasmgpu.partitioner.sums import Sums
from kerasmgpu.partitioner.writing import Writer, node_name


class Build:
    """One function, as it is written.

    What a tensor is on the replicas is a sequence of references, one per
    replica of this process. Where all are the same, the value is there once
    and TensorFlow sends it to who needs it.

    Args:
        graph: `graph.Graph`.
        plans: `planning.Plans` of it.
        replicas: `replicas.Replicas`.
        library: List that functions of loops and branches are added to.
        parent: The `Build` that the function is a body in, or `None`.
        is_compiled: Whether XLA will compile what each replica does.

    Attributes:
        writer: The function's `writing.Writer`.
        sizes: Its `host_sizes.HostSizes`.
        sums: Its `sums.Sums`.
        whole_outputs: Tensors that the function returns whole, where it is
            known before it is written.
        clock: What measures the worker's own time, or `None`.
        last_collective: For each place the name of the last collective.
        sent: List of `(tensor, what)` for each value that had to be `"summed"`
            or `"gathered"`, also those of loops and branches.
        twins: `{name: names}` of what every replica does with its own copies of
            the same values.
        captures: `{id: (tensor, reference)}` of tensors that the function gets
            besides those of the graph.
    """

    def __init__(
        self,
        graph,
        plans,
        replicas,
        library,
        parent=None,
        is_compiled=False,
    ):
        self.is_compiled = is_compiled
        self.graph = graph
        self.plans = plans
        self.replicas = replicas
        self.library = library
        self.parent = parent
        self.writer = Writer()
        self.sizes = HostSizes(self)
        self.sums = Sums(self)
        self.whole_outputs = ()
        self._natural = {}
        self._values = {}
        self._done = {}
        self.clock = None
        self.last_collective = {}
        self.twins = {}
        self.captures = {}
        self._kept = {}
        self._batch = None
        self._required = []
        self.sent = [] if parent is None else parent.sent

    def compiles(self, node):
        """Whether XLA will compile what a replica does for a node."""
        return self.is_compiled or MUST_COMPILE in node.definition.attr

    # What rules use to write operations --------------------------------------

    def op(self, type, inputs, attributes, place, name=None, controls=()):
        """Writes an operation; see `writing.Writer.op`."""
        return self._hosted(
            place,
            self.writer.op(
                type, inputs, attributes, self.device(place), name, controls
            ),
        )

    def _hosted(self, place, made):
        # What was written before is not written again: `last` may be another.
        if place == HOST:
            references = [made] if isinstance(made, str) else made
            names = {node_name(reference) for reference in references}
            self.writer.on_host |= names or {self.writer.last}
        return made

    def copy(self, node, inputs, place, **attributes):
        """Writes a node of the graph with other inputs, or attributes."""
        prefix = "host/" if place == HOST else f"replica_{place}/"
        controls = self.controls(node, place)
        return self._hosted(
            place,
            self.writer.copy(
                node, inputs, self.device(place), prefix, controls, attributes
            ),
        )

    def constant(self, array, dtype, place):
        """Writes a constant."""
        return self._hosted(
            place, self.writer.constant(array, dtype, self.device(place))
        )

    def cast(self, reference, source, target, place):
        """Writes a cast from one type to another, if that is another."""
        if source == target:
            return reference
        attributes = {"SrcT": source, "DstT": target, "Truncate": False}
        return self.op("Cast", [reference], attributes, place)[0]

    def reshape(self, reference, shape, dtype, place, of_shape=tf.int32):
        """Writes a reshape to a vector of sizes on the host."""
        attributes = {"T": dtype, "Tshape": of_shape}
        return self.op("Reshape", [reference, shape], attributes, place)[0]

    def flat(self, reference, dtype, place):
        """Writes a reshape to a vector of all elements."""
        return self.reshape(
            reference, self.constant([-1], tf.int32, HOST), dtype, place
        )

    def concat(self, references, axis, dtype, place):
        """Writes a concatenation."""
        if len(references) == 1:
            return references[0]
        where = self.constant(axis, tf.int32, HOST)
        attributes = {"N": len(references), "T": dtype, "Tidx": tf.int32}
        return self.op("ConcatV2", [*references, where], attributes, place)[0]

    def strided_slice(
        self,
        reference,
        begin,
        end,
        strides,
        dtype,
        place,
        index=tf.int32,
        **masks,
    ):
        """Writes a `StridedSlice`; masks are 0 where they aren't given."""
        attributes = {"T": dtype, "Index": index}
        for kind in ("begin", "end", "ellipsis", "new_axis", "shrink_axis"):
            attributes[f"{kind}_mask"] = masks.get(f"{kind}_mask", 0)
        inputs = [reference, begin, end, strides]
        return self.op("StridedSlice", inputs, attributes, place)[0]

    def device(self, place):
        """Name of the device of a place."""
        if place == HOST:
            return self.replicas.host
        return self.replicas.devices[place]

    def place_of(self, reference):
        """The place where a value is."""
        device = self.writer.device(reference)
        devices = self.replicas.devices
        return devices.index(device) if device in devices else HOST

    def captured(self, tensor):
        """A reference to an eager tensor, which the function gets passed."""
        if id(tensor) not in self.captures:
            reference = self.writer.add_input("captured", tensor.dtype)
            self.captures[id(tensor)] = (tensor, reference)
        return self.captures[id(tensor)][1]

    def keep(self, key, make):
        """What `make()` returned when it was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    # Values ------------------------------------------------------------------

    def give(self, tensor, kind, references):
        """Notes what a tensor is on the replicas."""
        self._natural.setdefault(tensor, kind)
        self._values.setdefault(tensor, {})[kind] = references

    def want(self, tensor, kind):
        """References to a tensor in the kind that is wanted, one per replica."""
        forms = self._values.setdefault(tensor, {})
        if kind not in forms:
            forms[kind] = converted(self, tensor, kind)
        return forms[kind]

    def wanted(self, node, plan):
        """For each input of a node, references in the kind that a plan wants."""
        return list(map(self.want, node.inputs, plan.wants))

    def natural(self, tensor):
        """The kind in which a tensor was written."""
        return self._natural[tensor]

    def given(self, tensor):
        """References to a tensor as it was written."""
        return self._values[tensor][self._natural[tensor]]

    def parts(self, tensor):
        """References whose sum, or the like, over the replicas is a tensor."""
        kind, parts = self.natural(tensor), self.given(tensor)
        if not isinstance(kind, Own):
            return parts
        return [
            self.times_share(part, kind.rows, tensor.dtype, place)
            for place, part in enumerate(parts)
        ]

    def times_share(self, reference, rows, dtype, place):
        """Writes a value times a replica's share of rows: 0 without rows."""
        inputs = [reference, self.sizes.share(rows, dtype, place)]
        return self.op("MulNoNan", inputs, {"T": dtype}, place)[0]

    def is_written(self, tensor):
        """Whether a tensor was written, rather than that its value is known."""
        return tensor in self._natural

    def has(self, tensor, kind):
        """Whether a tensor is there in that kind."""
        return kind in self._values.get(tensor, ())

    def same(self, reference):
        """One value for all replicas."""
        return [reference] * self.replicas.num

    # Nodes -------------------------------------------------------------------

    def run(self):
        """Writes all nodes of the graph."""
        for node in self.sums.nodes:
            if is_known(node):
                continue  # Written when it is needed, from its value.
            if node.type == "Const":
                self.give(node.outputs[0], REPLICATED, self._constant(node))
            elif node.bodies:
                bodies.write(self, node, self.plans.nodes[node])
            else:
                self._write(node, self.plans.nodes[node])

    def _constant(self, node):
        """A constant, for each place that needs it."""
        return OnEachPlace(
            lambda place: self.copy(node, [], place)[0], are_alike=True
        )

    def _write(self, node, plan):
        inputs = self.wanted(node, plan)
        if not self._is_on_each(node, plan, inputs):
            self.run_whole(node, inputs)
            return
        outputs = self.run_on_each(node, plan, inputs)
        for tensor, kind, references in zip(node.outputs, plan.gives, outputs):
            self.give(tensor, kind, references)

    def _is_on_each(self, node, plan, inputs):
        """Whether a node runs on every replica."""
        if node.type == "NoOp" or plan.is_local:
            return True
        if node.type in state.COPIES:
            return len(set(inputs[0])) > 1
        # A stack of new values of variables is sent as a whole.
        return node.type == "Unpack" and node.outputs[0] in self._assigned()

    def _assigned(self):
        """Tensors that are assigned to variables."""
        return self.keep(
            "assigned",
            lambda: {
                node.inputs[1]
                for node in self.graph.nodes
                if node.type == "AssignVariableOp"
            },
        )

    def run_on_each(self, node, plan, inputs):
        """Writes a node for every replica.

        Args:
            node: The node.
            plan: Its `rules.table.Plan`.
            inputs: For each input, references by replica.

        Returns:
            For each output, a list of references by replica.
        """
        emit = plan.emit or _as_it_is
        if empty_shares.is_fragile(self, node, plan):
            emit = empty_shares.write
        outputs = [[] for _ in node.outputs]
        for place in range(self.replicas.num):
            arguments = [references[place] for references in inputs]
            made = emit(self, node, plan, place, arguments)
            self.note_done(node)
            for references, reference in zip(outputs, made):
                references.append(reference)
        return outputs

    def run_whole(self, node, inputs=None):
        """Writes a node on whole values: once, or on each replica's copies.

        Where devices don't share memory, what is cheap and gives the same bits
        everywhere is computed from each replica's own copies.

        Args:
            node: The node.
            inputs: See `run_on_each`; as its inputs are, if not given.

        Returns:
            For each output, references by replica.
        """
        if inputs is None:
            inputs = [self.want(tensor, REPLICATED) for tensor in node.inputs]
        has_copies = any(len(set(references)) > 1 for references in inputs)
        if (
            has_copies
            and not self.replicas.shares_memory
            and node.type in elementwise.ELEMENTWISE
        ):
            outputs = self.run_on_each(node, table.replicated(node), inputs)
            names = self._done[node][-self.replicas.num :]
            self.twins.update(dict.fromkeys(names, names))
        else:
            place = _home(node)
            made = self.copy(node, [refs[place] for refs in inputs], place)
            self.note_done(node)
            outputs = [self.same(reference) for reference in made]
        outputs = [
            self.replicas.agreed(self, references, tensor)
            if tensor in self.plans.must_agree
            else references
            for tensor, references in zip(node.outputs, outputs)
        ]
        for tensor, references in zip(node.outputs, outputs):
            self.give(tensor, REPLICATED, references)
        return outputs

    # Order -------------------------------------------------------------------

    def note_done(self, node):
        """Notes that what was written last is a node of the graph."""
        self._done.setdefault(node, []).append(self.writer.last)

    def controls(self, node, place):
        """Names of what must have run before a node at a place."""
        names = []
        for control in node.controls:
            done = self._done.get(control, ())
            if len(done) == self.replicas.num and place != HOST:
                names.append(done[place])
            else:
                names += done
        if self._batch is not None and _has_effect(node):
            names.append(self.started(place))
        return list(dict.fromkeys(names))

    def wait_for(self, reference, dtype):
        """Lets nothing happen before an input is there.

        What would happen without a batch, at the end of the data, must leave
        no trace.
        """
        self._batch = (reference, dtype)

    def require(self, condition, message):
        """Lets nothing happen unless a condition on the inputs holds.

        Args:
            condition: Reference to a boolean on the host.
            message: What the error says that is raised otherwise.
        """
        text = self.constant(message, tf.string, HOST)
        attributes = {"T": [tf.string], "summarize": 1}
        self.op("Assert", [condition, text], attributes, HOST, "require")
        self._required.append(self.writer.last)

    def started(self, place):
        """Name of a node that has run when there is a batch."""
        reference, dtype = self._batch
        return self.keep(
            ("started", place),
            lambda: self.writer.barrier(
                reference,
                dtype,
                self.device(HOST),
                self.device(place),
                self._required,
            ),
        )

    def function(self, name, outputs):
        """The function that was written, with what XLA compiles in it.

        Args:
            name: Its name.
            outputs: List of `(reference, dtype)`.

        Returns:
            A `FunctionDef`.
        """
        references = compile_stretches(self, [r for r, _ in outputs])
        types = [dtype for _, dtype in outputs]
        return self.writer.function(name, list(zip(references, types)))

    def effects(self):
        """Names of nodes that must run."""
        return self._required + [
            name
            for node in self.graph.effects
            for name in self._done.get(node, ())
        ]


def _as_it_is(build, node, plan, place, inputs):
    return build.copy(node, inputs, place)


def _home(node):
    """The place where a node runs that runs once."""
    for tensor in (*node.inputs, *node.outputs):
        dtype = tensor.dtype
        if dtype.is_floating or dtype.is_complex or dtype == tf.resource:
            return 0
    return HOST


def _has_effect(node):
    return bool(node.bodies) or (
        node.is_stateful and node.type not in ONLY_LOOK
    )
