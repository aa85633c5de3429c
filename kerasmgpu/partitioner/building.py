"""Writes the function in which replicas run a planned graph together."""

import tensorflow as tf

from kerasmgpu.partitioner import empty_shares, sizes
from kerasmgpu.partitioner.kinds import (
    PARTIAL,
    REPLICATED,
    ListOf,
    LocalSizes,
    Partial,
    Sharded,
)
from kerasmgpu.partitioner.rules import control_flow, elementwise, state, table
from kerasmgpu.partitioner.facts import is_known
from kerasmgpu.partitioner.writing import Writer

HOST = -1
"""The place of what runs on the host: sizes, strings, lookups."""


class Build:
    """The function of one graph, as it is written.

    What a tensor is on the replicas is a list of references, one per local
    replica; where all are the same, the value is there once and TensorFlow
    sends it to who needs it.

    Args:
        graph: `graph.Graph`.
        plans: `planning.Plans` of it.
        replicas: `Replicas`.
        library: List that functions of loops and branches are added to.
        parent: The `Build` that the function is a body in, or `None`.
    """

    def __init__(self, graph, plans, replicas, library, parent=None):
        self.graph = graph
        self.plans = plans
        self.replicas = replicas
        self.library = library
        self.parent = parent
        self.writer = Writer()
        self.imports = {}
        self._values = {}
        self._natural = {}
        self._done = {}
        self._kept = {}
        self._sums = _Sums(self)
        self._first_batch = None
        self._assigned = None
        self._position = 0

    # What rules use to write operations --------------------------------------

    def op(self, type, inputs, attributes, place, name=None, controls=()):
        """Writes an operation at a place; see `Writer.op`."""
        return self.writer.op(
            type, inputs, attributes, self.device(place), name, controls
        )

    def copy(self, node, inputs, place, controls=None):
        """Writes a node of the graph at a place with other inputs."""
        if controls is None:
            controls = self.controls(node, place)
        prefix = "host/" if place == HOST else f"replica_{place}/"
        return self.writer.copy(
            node, inputs, self.device(place), prefix, controls
        )

    def constant(self, array, dtype, place):
        """A constant at a place."""
        return self.writer.constant(array, dtype, self.device(place))

    def device(self, place):
        """Name of the device of a place."""
        if place == HOST:
            return self.replicas.host
        return self.replicas.devices[place]

    def kind(self, tensor):
        """How a tensor lies on the replicas."""
        return self.plans.kinds[tensor]

    def plan(self, node):
        """How a node is run."""
        return self.plans.nodes[node]

    # Values ------------------------------------------------------------------

    def give(self, tensor, kind, references):
        """Notes what a tensor is on the replicas."""
        self._natural.setdefault(tensor, kind)
        self._values.setdefault(tensor, {})[kind] = references

    def wait_for(self, reference, dtype):
        """Lets nothing happen to variables before an input is there."""
        self._first_batch = (reference, dtype)

    def want(self, tensor, kind):
        """References to a tensor in the kind that is wanted.

        Returns:
            A list with one reference per local replica.
        """
        forms = self._values.setdefault(tensor, {})
        if kind not in forms:
            references = self._converted(tensor, kind)
            forms[kind] = references
        return forms[kind]

    def has(self, tensor, kind):
        """Whether a tensor was written in that kind."""
        return kind in self._values.get(tensor, ())

    def given(self, tensor):
        """References to a tensor as it was made."""
        return self._values[tensor][self._natural[tensor]]

    def _converted(self, tensor, kind):
        if isinstance(kind, LocalSizes):
            return self._local_sizes(tensor, kind)
        if isinstance(kind, ListOf):
            return self.given(tensor)
        if isinstance(kind, Sharded):
            return self._taken(tensor, kind)
        if isinstance(kind, Partial):
            return self._on_first(self.want(tensor, REPLICATED), tensor.dtype)
        return self._whole(tensor)

    def _whole(self, tensor):
        """The whole value of a tensor, wherever it is needed."""
        kind = self._natural.get(tensor)
        if kind is None:
            return self._known(tensor)
        if isinstance(kind, Partial):
            return self._sums.whole(tensor, kind)
        if isinstance(kind, ListOf):
            return self.given(tensor)
        if tensor in self.plans.free:
            return self._again(tensor)
        return self._gathered(tensor, kind, self.given(tensor))

    def _again(self, tensor):
        """Whole rows, made by the operation that made each replica's."""
        node = tensor.node
        inputs = [self.want(source, REPLICATED) for source in node.inputs]
        self._run_whole(node, inputs)
        return self._values[tensor][REPLICATED]

    def _known(self, tensor):
        """A tensor whose value is known but for sizes of the batch."""
        if tensor.value is None:
            raise RuntimeError(f"Nothing was written for {tensor}.")
        return self.same(self.vector(tensor.value, tensor.dtype))

    def same(self, reference):
        """One value for all replicas."""
        return [reference] * self.replicas.num

    # Sizes -------------------------------------------------------------------

    def vector(self, value, dtype=tf.int32):
        """A scalar or vector of sizes, on the host."""
        entries = value if isinstance(value, tuple) else (value,)
        if all(isinstance(entry, int) for entry in entries):
            return self.constant(value, dtype, HOST)
        if not isinstance(value, tuple):
            return self.size(value, dtype)
        return self.op(
            "Pack",
            [self.size(entry, dtype) for entry in value],
            {"N": len(value), "T": dtype, "axis": 0},
            HOST,
        )[0]

    def shares_of(self, rows):
        """References to each local replica's share of an input, or `None`.

        Args:
            rows: `Rows` of the input.
        """
        for tensor in self.graph.inputs:
            kind = self._natural.get(tensor)
            if isinstance(kind, Sharded) and kind.rows == rows:
                return tensor, self.given(tensor)
        return None

    def size(self, size, dtype=tf.int32):
        """A size as a scalar on the host."""
        if isinstance(size, int):
            return self.constant(size, dtype, HOST)
        if dtype != tf.int32:
            return self.cast(self.size(size), tf.int32, dtype, HOST)
        total = None
        for symbols, coefficient in size.terms.items():
            term = None
            for symbol in symbols:
                term = self._times(term, self.symbol(symbol))
            if coefficient != 1 or term is None:
                number = self.constant(coefficient, tf.int32, HOST)
                term = self._times(term, number)
            total = term if total is None else self._plus(total, term)
        return total

    def symbol(self, symbol):
        """The number that a symbol is when the graph runs."""
        symbol = symbol.joined
        return self.keep(("symbol", symbol), lambda: self._symbol(symbol))

    def _symbol(self, symbol):
        tensor, axis = symbol.source
        if tensor not in self._natural:
            return self.imported(("symbol", symbol))
        kind = self._natural[tensor]
        if isinstance(kind, Sharded) and kind.axis == axis:
            if symbol.is_rows:
                return self.replicas.all_rows(self, kind.rows)
            return self.size(kind.size)
        reference = self.given(tensor)[0]
        shape = self.op(
            "Shape",
            [reference],
            {"T": tensor.dtype, "out_type": tf.int32},
            self._place_of(reference),
        )[0]
        return self.entry(shape, axis)

    def entry(self, vector, index, dtype=tf.int32):
        """An entry of a vector on the host."""
        bounds = [
            self.constant([bound], tf.int32, HOST)
            for bound in (index, index + 1, 1)
        ]
        attributes = {"T": dtype, "Index": tf.int32, "shrink_axis_mask": 1}
        for mask in ("begin", "end", "ellipsis", "new_axis"):
            attributes[f"{mask}_mask"] = 0
        return self.op("StridedSlice", [vector, *bounds], attributes, HOST)[0]

    def imported(self, request):
        """A number of the function in which this one is a body."""
        if self.parent is None:
            raise RuntimeError(f"Nobody knows {request}.")
        if request not in self.imports:
            self.imports[request] = self.writer.add_input("size", tf.int32)
        return self.imports[request]

    def exported(self, request):
        """What a body asked for."""
        what, *about = request
        if what == "symbol":
            return self.symbol(*about)
        rows, number = about
        return self.rows(rows, what, number)

    def rows(self, rows, what, number):
        """A number of rows on the host.

        Args:
            rows: `Rows`.
            what: `"count"` of a local replica, or its `"start"`.
            number: Number of the local replica.
        """
        key = (what, rows, number)
        return self.keep(key, lambda: self._rows(key))

    def _rows(self, key):
        if self.parent is not None:
            return self.imported(key)
        what, rows, number = key
        for local, (start, count) in enumerate(self.replicas.shares(self, rows)):
            self._kept["start", rows, local] = start
            self._kept["count", rows, local] = count
        return self._kept[key]

    def local_size(self, sharded, place):
        """Elements of a sharded axis on one replica, on the host."""
        count = self.rows(sharded.rows, "count", place)
        for factor in (sharded.outer, sharded.inner):
            if factor != 1:
                count = self._times(count, self.size(factor))
        return count

    def share(self, sharded, dtype, place):
        """A replica's rows over all rows, as a scalar on its device."""
        count = self.rows(sharded.rows, "count", place)
        total = self.size(sharded.rows.size)
        parts = [self.cast(n, tf.int32, tf.float64, HOST) for n in (count, total)]
        ratio = self.op("RealDiv", parts, {"T": tf.float64}, HOST)[0]
        if dtype != tf.float64:
            ratio = self.cast(ratio, tf.float64, dtype, HOST)
        return ratio

    def cast(self, reference, source, target, place):
        """A value in another type."""
        attributes = {"SrcT": source, "DstT": target, "Truncate": False}
        return self.op("Cast", [reference], attributes, place)[0]

    def _times(self, one, two):
        if one is None:
            return two
        return self.op("Mul", [one, two], {"T": tf.int32}, HOST)[0]

    def _plus(self, one, two):
        return self.op("AddV2", [one, two], {"T": tf.int32}, HOST)[0]

    def keep(self, key, make):
        """What `make()` returned when it was first asked for."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    # From one kind to another ------------------------------------------------

    def _local_sizes(self, tensor, kind):
        """A vector of sizes with each replica's own size at the sharded axis."""
        sharded, value, dtype = kind.sharded, tensor.value, tensor.dtype
        axis = sharded.axis
        if tensor.shape == () or value is not None and not isinstance(value, tuple):
            return self.want(tensor, REPLICATED)  # A rank that isn't told.
        result = []
        for place in range(self.replicas.num):
            own = self.local_size(sharded, place)
            if dtype != tf.int32:
                own = self.cast(own, tf.int32, dtype, HOST)
            if kind.may_infer and _may_infer(value, axis):
                others = (*value[:axis], -1, *value[axis + 1 :])
                result.append(self.constant(others, dtype, HOST))
            elif isinstance(value, tuple):
                entries = [
                    own if n == axis else self.size(entry, dtype)
                    for n, entry in enumerate(value)
                ]
                result.append(self._packed(entries, dtype))
            else:
                result.append(self._with_entry(tensor, axis, own))
        return result

    def _packed(self, entries, dtype):
        return self.op(
            "Pack", entries, {"N": len(entries), "T": dtype, "axis": 0}, HOST
        )[0]

    def _with_entry(self, tensor, axis, entry):
        """A vector with another entry."""
        (whole, *_) = self.want(tensor, REPLICATED)
        dtype = tensor.dtype
        attributes = {"T": dtype, "Tindices": tf.int32}
        indices = self.constant([[axis]], tf.int32, HOST)
        updates = self._packed([entry], dtype)
        return self.op(
            "TensorScatterUpdate", [whole, indices, updates], attributes, HOST
        )[0]

    def _gathered(self, tensor, sharded, parts):
        """All rows of a sharded tensor, in order."""
        return self.replicas.gather(self, tensor, sharded, parts)

    def concatenated(self, parts, axis, dtype, place):
        """Parts one after the other."""
        if len(parts) == 1:
            return parts[0]
        where = self.constant(axis, tf.int32, HOST)
        attributes = {"N": len(parts), "T": dtype, "Tidx": tf.int32}
        return self.op("ConcatV2", [*parts, where], attributes, place)[0]

    def _taken(self, tensor, sharded):
        """Each replica's own rows of a whole tensor."""
        made = self._made_locally(tensor, sharded)
        if made is not None:
            return made
        whole = self.want(tensor, REPLICATED)
        return [
            self.taken(tensor, whole[place], sharded, place)
            for place in range(self.replicas.num)
        ]

    def _made_locally(self, tensor, sharded):
        """A replica's rows made by the operation that makes all rows.

        A mask that is drawn, compared and cast is drawn, compared and cast for
        one's own rows only.
        """
        node = tensor.node
        if node.type not in table.CHEAP and node.type not in table.GENERATORS:
            return None
        if node.type not in table.AXES or node.controls:
            return None
        if self.plans.kinds.get(tensor) != REPLICATED:
            return None
        axes = table.AXES[node.type](node)
        if axes is None or tensor.shape is None:
            return None
        labels = axes.outputs[tensor.index]
        if tensor.shape[sharded.axis] != sharded.size:
            return None
        label = labels[sharded.axis]
        if label is None:
            return None
        plan = table.by_label(node, axes, label, sharded)
        inputs = [
            self.want(source, want)
            for source, want in zip(node.inputs, plan.wants)
        ]
        outputs = self._on_each(node, plan, inputs)
        return outputs[tensor.index]

    def taken(self, tensor, reference, sharded, place):
        """The rows of one replica out of a whole tensor."""
        axis, dtype = sharded.axis, tensor.dtype
        if tensor.shape is not None and _may_be_one(tensor.shape[axis], sharded):
            return self._taken_unless_one(tensor, reference, sharded, place)
        where = self._place_of(reference)
        if sharded.outer != 1:
            return self._taken_from_blocks(
                tensor, reference, sharded, place, where
            )
        start = self.rows(sharded.rows, "start", place)
        count = self.rows(sharded.rows, "count", place)
        if sharded.inner != 1:
            inner = self.size(sharded.inner)
            start, count = self._times(start, inner), self._times(count, inner)
        return self.sliced(reference, axis, start, count, dtype, where)

    def sliced(self, reference, axis, start, count, dtype, where):
        """`count` elements of an axis, from `start` on."""
        end = self._plus(start, count)
        zero = self.constant(0, tf.int32, HOST)
        before = [zero] * axis
        bounds = [
            self._packed([*before, bound], tf.int32) for bound in (start, end)
        ]
        strides = self.constant([1] * (axis + 1), tf.int32, HOST)
        whole = (1 << axis) - 1  # The axes in front.
        attributes = {
            "T": dtype,
            "Index": tf.int32,
            "begin_mask": whole,
            "end_mask": whole,
            "ellipsis_mask": 0,
            "new_axis_mask": 0,
            "shrink_axis_mask": 0,
        }
        return self.op(
            "StridedSlice", [reference, *bounds, strides], attributes, where
        )[0]

    def _taken_from_blocks(self, tensor, reference, sharded, place, where):
        """Rows out of each of several blocks of all rows."""
        axis, dtype = sharded.axis, tensor.dtype
        rows = sizes.product([sharded.rows.size, sharded.inner])
        blocks = (
            *tensor.shape[:axis],
            sharded.outer,
            rows,
            *tensor.shape[axis + 1 :],
        )
        split = self.reshaped(reference, self.vector(blocks), dtype, where)
        start = self.rows(sharded.rows, "start", place)
        count = self.rows(sharded.rows, "count", place)
        if sharded.inner != 1:
            inner = self.size(sharded.inner)
            start, count = self._times(start, inner), self._times(count, inner)
        part = self.sliced(split, axis + 1, start, count, dtype, where)
        own = self._local_shape(tensor.shape, sharded, place)
        return self.reshaped(part, own, dtype, where)

    def _local_shape(self, shape, sharded, place):
        """The shape of one replica's rows, on the host."""
        own = self.local_size(sharded, place)
        return self._packed(
            [
                own if n == sharded.axis else self.size(size)
                for n, size in enumerate(shape)
            ],
            tf.int32,
        )

    def _taken_unless_one(self, tensor, reference, sharded, place):
        """Rows of an axis that may turn out to be one element, which stays."""
        where = self._place_of(reference)
        axis = sharded.axis
        size = self.size(tensor.shape[axis])
        one = self.constant(1, tf.int32, HOST)
        is_one = self.op("Equal", [size, one], {"T": tf.int32}, HOST)[0]
        start = self.rows(sharded.rows, "start", place)
        count = self.local_size(sharded, place)
        if sharded.inner != 1:
            start = self._times(start, self.size(sharded.inner))
        zero = self.constant(0, tf.int32, HOST)
        attributes = {"T": tf.int32}
        begin = self.op("SelectV2", [is_one, zero, start], attributes, HOST)[0]
        count = self.op("SelectV2", [is_one, one, count], attributes, HOST)[0]
        return self.sliced(reference, axis, begin, count, tensor.dtype, where)

    def reshaped(self, reference, shape, dtype, place):
        """A value in another shape, which is a vector on the host."""
        attributes = {"T": dtype, "Tshape": tf.int32}
        return self.op("Reshape", [reference, shape], attributes, place)[0]

    def _on_first(self, references, dtype):
        """A whole value as a sum: the first of all replicas has it."""
        return [
            references[place]
            if self.replicas.first + place == 0
            else self.op("ZerosLike", [references[place]], {"T": dtype}, place)[0]
            for place in range(self.replicas.num)
        ]

    def _place_of(self, reference):
        """The place of the device on which a value is."""
        device = self.writer.device(reference)
        devices = self.replicas.devices
        return devices.index(device) if device in devices else HOST

    # Nodes -------------------------------------------------------------------

    def run(self):
        """Writes all nodes."""
        for self._position, node in enumerate(self.graph.nodes):
            if node.type == "Input":
                continue
            plan = self.plans.nodes[node]
            if is_known(node):
                continue
            if node.type == "Const":
                self._constant(node)
            elif node.bodies:
                from kerasmgpu.partitioner import building_bodies

                building_bodies.build(self, node, plan)
            else:
                self._node(node, plan)

    def _constant(self, node):
        (tensor,) = node.outputs
        self.give(tensor, REPLICATED, _Copies(self, node))

    def _node(self, node, plan):
        inputs = [
            self.want(tensor, kind)
            for tensor, kind in zip(node.inputs, plan.wants)
        ]
        if not self._runs_on_each(node, plan, inputs):
            self._run_whole(node, inputs)
            return
        outputs = self._on_each(node, plan, inputs)
        for tensor, kind, references in zip(node.outputs, plan.gives, outputs):
            self.give(tensor, kind, references)

    def _runs_on_each(self, node, plan, inputs):
        if node.type == "NoOp":
            return True
        kinds = (*plan.wants, *plan.gives)
        if any(_is_local(kind) for kind in kinds):
            return True
        if node.type in state.COPIES:
            return len(set(inputs[0])) > 1
        # Sent once as a whole, not part by part.
        return node.type == "Unpack" and self._goes_into_copies(node)

    def _goes_into_copies(self, node):
        """Whether most of a node's outputs are assigned to variables."""
        if self._assigned is None:
            self._assigned = {
                other.inputs[1]
                for other in self.graph.nodes
                if other.type == "AssignVariableOp"
            }
        return any(tensor in self._assigned for tensor in node.outputs)

    def _on_each(self, node, plan, inputs):
        """Runs a node on every replica; returns its outputs by replica."""
        outputs = [[] for _ in node.outputs]
        emit = plan.emit or _copied
        if empty_shares.is_fragile(self, node, plan):
            emit = empty_shares.write
        for place in range(self.replicas.num):
            arguments = [references[place] for references in inputs]
            made = emit(self, node, plan, place, arguments)
            self.note_done(node)
            for references, reference in zip(outputs, made):
                references.append(reference)
        return outputs

    def _run_whole(self, node, inputs):
        """Runs a node on whole values: once, or on each replica's copies."""
        single = all(len(set(references)) == 1 for references in inputs)
        copies = (
            not single
            and not self.replicas.shares_memory
            and node.type in elementwise.ELEMENTWISE
        )
        if copies:
            outputs = self._on_each(node, table.replicated(node), inputs)
        else:
            place = self._home(node)
            arguments = [references[place] for references in inputs]
            made = self.copy(node, arguments, place)
            self.note_done(node)
            outputs = [self.same(reference) for reference in made]
        for tensor, references in zip(node.outputs, outputs):
            self.give(tensor, REPLICATED, references)

    def _home(self, node):
        """The place where a node runs that runs once."""
        tensors = (*node.inputs, *node.outputs)
        floating = any(
            tensor.dtype.is_floating or tensor.dtype.is_complex
            for tensor in tensors
        )
        return 0 if floating or any(t.dtype == tf.resource for t in tensors) else HOST

    def controls(self, node, place):
        """Names of what must have run before a node at a place."""
        names = []
        for control in node.controls:
            done = self._done.get(control, ())
            if len(done) == self.replicas.num and place != HOST:
                names.append(done[place])
            else:
                names += done
        if self._first_batch is not None and node.type not in _NO_EFFECT:
            if node.is_stateful or node.bodies:
                names.append(self._started(place))
        return list(dict.fromkeys(names))

    def _started(self, place):
        """Name of a node that has run when there is a batch.

        What happens without one, at the end of the data, must leave no trace.
        """
        key = ("started", place)
        if key not in self._kept:
            reference, dtype = self._first_batch
            self._kept[key] = self.writer.barrier(
                reference, dtype, self.device(HOST), self.device(place)
            )
        return self._kept[key]

    def note_done(self, node):
        """Notes that what was written last is a node of the graph."""
        self._done.setdefault(node, []).append(self.writer.last)

    def effects(self):
        """Names of nodes that must run."""
        return [
            name for node in self.graph.effects for name in self._done.get(node, ())
        ]


class _Copies:
    """A constant that each place writes for itself when it needs it."""

    def __init__(self, build, node):
        self._build, self._node = build, node
        self._written = {}

    def __getitem__(self, place):
        if place not in self._written:
            (self._written[place],) = self._build.copy(self._node, [], place, ())
        return self._written[place]

    def __iter__(self):
        return iter(["constant"])


class _Sums:
    """Sums partial values over the replicas, several at a time.

    When the first of them is needed, all that are there and are needed before
    the next one comes are summed with it.
    """

    def __init__(self, build):
        self._build = build
        self._needed = None

    def whole(self, tensor, kind):
        """The whole value of a partial tensor."""
        build = self._build
        if self._needed is None:
            self._find_needed()
        group = self._group(tensor)
        for kind in dict.fromkeys(k for _, k in group):
            alike = [t for t, k in group if k == kind]
            parts = [build.want(t, kind) for t in alike]
            for one, references in zip(
                alike, build.replicas.reduce(build, alike, parts, kind.by)
            ):
                build.give(one, REPLICATED, references)
        return build.want(tensor, REPLICATED)

    def _find_needed(self):
        """Positions at which partial values are made and first needed whole."""
        build = self._build
        position = {n: p for p, n in enumerate(build.graph.nodes)}
        needed = {}
        for node in build.graph.nodes:
            plan = build.plans.nodes.get(node)
            if plan is None:
                continue
            for tensor, want in zip(node.inputs, plan.wants):
                source = build.plans.nodes.get(tensor.node)
                if source is None or isinstance(want, Partial):
                    continue
                given = source.gives[tensor.index]
                if isinstance(given, Partial):
                    needed.setdefault(tensor, (position[node], given))
        self._needed = needed
        self._position = position

    def _group(self, tensor):
        build = self._build
        now = build._position
        position = self._position
        later = [
            position[t.node] for t in self._needed if position[t.node] > now
        ]
        limit = min(later, default=float("inf"))
        group = [
            (t, kind)
            for t, (first, kind) in self._needed.items()
            if position[t.node] < now
            and first < limit
            and t is not tensor
            and not build.has(t, REPLICATED)
        ]
        group.append((tensor, build._natural[tensor]))
        return sorted(group, key=lambda pair: position.get(pair[0].node, -1))


def _copied(build, node, plan, place, inputs):
    return build.copy(node, inputs, place)


_NO_EFFECT = {"ReadVariableOp", "ResourceGather", "VarIsInitializedOp"}
"""Stateful operations that only look."""

def _is_local(kind):
    """Whether a kind is something else on each replica."""
    if isinstance(kind, ListOf):
        return isinstance(kind.kind, Sharded)
    return isinstance(kind, (Sharded, Partial, LocalSizes))


def _may_infer(value, axis):
    """Whether a reshape can find out the size of an axis by itself."""
    if not isinstance(value, tuple):
        return False
    others = value[:axis] + value[axis + 1 :]
    return all(isinstance(size, int) and size > 0 for size in others)


def _may_be_one(size, sharded):
    """Whether an axis may have one element that is stretched to all rows."""
    if size == sharded.size:
        return False
    return size == 1 or not isinstance(size, int)


__all__ = ["Build", "HOST", "PARTIAL"]
