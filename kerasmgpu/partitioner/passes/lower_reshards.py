"""Replaces each `Reshard` by communication, slices or recomputation."""

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.exchanges import ToOwners
from kerasmgpu.partitioner.ir.instructions import (
    Alias,
    AllGather,
    AllReduce,
    FirstOnly,
    Instruction,
    KnownSizes,
    LocalShape,
    Operation,
    ReduceScatter,
    Reshard,
    Slice,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region, values
from kerasmgpu.partitioner.rules import table
from kerasmgpu.partitioner.rules.kinds import (
    KNOWN,
    PARTIAL,
    REPLICATED,
    Kept,
    Kind,
    Known,
    ListOf,
    LocalSizes,
    Owned,
    Partial,
    PerReplica,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.records import Trait, record


def lower_reshards(program: Lowered) -> None:
    """Replaces each `Reshard` by instructions that make its output.

    An output that an earlier instruction has made is not made again.
    """
    lowering = _Lowering(program)
    for instruction in program.instructions:
        if isinstance(instruction, Reshard):
            (wanted,) = instruction.outputs
            lowering.want(wanted.tensor, wanted.kind)
        else:
            lowering.add(instruction)
        if isinstance(instruction, Region):
            for body in instruction.bodies:
                lower_reshards(body)
    program.instructions = lowering.instructions


class _Lowering:
    """Builds the new instructions of a program, one after the other.

    Args:
        program: The program whose reshards are lowered.
    """

    def __init__(self, program: Lowered) -> None:
        self.instructions: list[Instruction] = []
        self._program = program
        self._made = dict.fromkeys(program.given)
        self._source = {one.tensor: one for one in program.given}

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction whose inputs are made; records its outputs."""
        self.instructions.append(instruction)
        for one in instruction.outputs:
            self._made[one] = None
            self._source.setdefault(one.tensor, one)

    def want(self, tensor: Tensor, kind: Kind) -> Value:
        """Returns a tensor's value in a kind; makes it first if necessary."""
        wanted = value(tensor, kind)
        if wanted not in self._made:
            self._make(wanted)
            self._made[wanted] = None
        return wanted

    def _make(self, wanted: Value) -> None:
        tensor, kind = wanted.tensor, wanted.kind
        if isinstance(kind, LocalSizes):
            self._local_shape(wanted, kind)
        elif isinstance(kind, ListOf):
            self._from(Alias, self._source[tensor], wanted)
        elif isinstance(kind, Sharded):
            if self._is_scattered(tensor, kind):
                widens = self._program.mesh.total > 1
                self.instructions.append(
                    ReduceScatter((self._source[tensor],), (wanted,), widens)
                )
            elif not self._made_locally(wanted, kind):
                whole = self.want(tensor, REPLICATED)
                self.instructions.append(
                    Slice((whole,), (wanted,), _may_be_one(tensor, kind))
                )
        elif isinstance(kind, Owned):
            if not self._made_by_owners(wanted, kind):
                own = self.want(tensor, kind.rows)
                numbers = self.want(kind.numbers, kind.rows)
                self.instructions.append(ToOwners((own, numbers), (wanted,)))
        elif isinstance(kind, PerReplica):
            # A replica's part of a sum is computed from its own rows.
            source = self._source.get(tensor)
            if source is None or not isinstance(source.kind, Partial):
                source = self.want(tensor, REPLICATED)
            self._from(Alias, source, wanted)
        elif isinstance(kind, Partial):
            whole = self.want(tensor, REPLICATED)
            # Of a maximum or minimum, every replica's part is the whole value.
            is_sum = kind.by == "sum"
            self._from(FirstOnly if is_sum else Alias, whole, wanted)
        else:
            self._whole(wanted)

    def _is_scattered(self, tensor: Tensor, kind: Sharded) -> bool:
        """Whether to make `kind` by a reduce-scatter of a partial sum.

        Not if the whole sum is made already. Between workers, and with
        micro-batches, only for sharded variables of known size: TensorFlow
        caches the shape of a collective.
        """
        source = self._source.get(tensor)
        mesh = self._program.mesh
        is_static = is_of_variable(kind) and tensor.num_bytes < float("inf")
        is_needed = self._program.plans.kinds.get(tensor) == kind
        return (
            source is not None
            and source.kind == PARTIAL
            and is_needed
            and kind.outer == 1
            and (
                is_static
                or (mesh.num == mesh.total)
                and mesh.micro_batches == 1
            )
            and value(tensor, REPLICATED) not in self._made
        )

    def _from(
        self, type: type[Instruction], source: Value, wanted: Value
    ) -> None:
        self.instructions.append(type((source,), (wanted,)))

    def _whole(self, wanted: Value) -> None:
        """Makes a tensor whole: by gathering, reducing or recomputing it."""
        tensor, plans = wanted.tensor, self._program.plans
        source = self._source.get(tensor, value(tensor, KNOWN))
        kind = source.kind
        if isinstance(kind, Known):
            self.instructions.append(KnownSizes((), (wanted,)))
        elif isinstance(kind, ListOf):
            self._from(Alias, source, wanted)
        elif isinstance(kind, Kept):
            raise InputError(
                f"{tensor} is what cuDNN keeps for a gradient on each GPU, and "
                "can't be put together. Received: a step that reads it; give "
                "its layer use_cudnn=False."
            )
        elif kind == PARTIAL and is_of_variable(plans.kinds.get(tensor)):
            # Each replica needs its own part of it, too.
            own = self.want(tensor, plans.kinds[tensor])
            self._from(AllGather, own, wanted)
        elif isinstance(kind, (PerReplica, Partial)):
            widens = self._program.mesh.total > 1
            self.instructions.append(
                AllReduce((source,), (wanted,), kind.by, widens)
            )
        elif tensor in plans.free:
            self._recomputed(tensor)
        else:
            self._from(AllGather, source, wanted)

    def _recomputed(self, tensor: Tensor) -> None:
        """Adds the tensor's operation on whole inputs: nothing is sent."""
        node = tensor.node
        plan = table.replicated(node)
        inputs = tuple(self.want(t, REPLICATED) for t in node.inputs)
        outputs = tuple(values(node.outputs, plan.gives))
        self.add(Operation(inputs, outputs, node, plan))

    def _made_locally(self, wanted: Value, sharded: Sharded) -> bool:
        """Runs a replicated tensor's operation on each replica's rows only.

        A mask, for example, is then drawn, compared and cast by each replica
        for its own rows.

        Returns:
            Whether that is possible; if not, nothing is added.
        """
        tensor = wanted.tensor
        node, kinds = tensor.node, self._program.plans.kinds
        if {Trait.CHEAP, Trait.GENERATES}.isdisjoint(record(node.type).traits):
            return False
        if node.controls or tensor.shape is None:
            return False
        if kinds.get(tensor) != REPLICATED:
            return False
        if tensor.shape[sharded.axis] != sharded.size:
            return False
        axes = table.axes_of(node)
        if axes is None:
            return False
        label = axes.outputs[tensor.index][sharded.axis]
        if label is None:
            return False
        plan = table.by_label(node, axes, label, sharded)
        if plan is None:
            return False
        inputs = tuple(map(self.want, node.inputs, plan.wants))
        outputs = tuple(
            wanted if other is tensor else value(other, kind)
            for other, kind in zip(node.outputs, plan.gives)
        )
        self.instructions.append(Operation(inputs, outputs, node, plan))
        return True

    def _made_by_owners(self, wanted: Value, kind: Owned) -> bool:
        """Runs an elementwise operation on the replicas that own the rows.

        Adam's gradients, for example, are sent to them, and squared there.

        Returns:
            Whether that is possible: the inputs are one sent tensor and
            scalars. If not, nothing is added.
        """
        tensor, kinds = wanted.tensor, self._program.plans.kinds
        node = tensor.node
        if Trait.ELEMENTWISE not in record(node.type).traits or node.controls:
            return False
        sent = [one for one in node.inputs if one.rank != 0]
        if len(node.outputs) > 1 or len(sent) != 1:
            return False
        (source,) = sent
        if (
            source.shape != tensor.shape
            or source.dtype.size > tensor.dtype.size
            or kinds.get(source) != kind.rows
        ):
            return False
        wants = [kind if one is source else REPLICATED for one in node.inputs]
        inputs = tuple(map(self.want, node.inputs, wants))
        plan = table.Plan(tuple(wants), (kind,))
        self.instructions.append(Operation(inputs, (wanted,), node, plan))
        return True

    def _local_shape(self, wanted: Value, kind: LocalSizes) -> None:
        tensor = wanted.tensor
        if tensor.shape == () or isinstance(tensor.value, int):
            # The scalar -1 stands for a shape of unknown rank.
            whole = self.want(tensor, REPLICATED)
            self.instructions.append(Alias((whole,), (wanted,)))
            return
        known = _local_sizes(kind, tensor.value)
        inputs: tuple[Value, ...] = ()
        if known is None:
            inputs = (self.want(tensor, REPLICATED),)
        self.instructions.append(LocalShape(inputs, (wanted,), known))


def _local_sizes(kind: LocalSizes, shape: object) -> tuple | None:
    """Returns `LocalShape.sizes`; `None` if a size is not known by symbol."""
    if not isinstance(shape, tuple):
        return None
    axis = kind.sharded.axis
    others = shape[:axis] + shape[axis + 1 :]
    if (
        kind.may_infer
        and sizes.are_integers(others)
        and all(size > 0 for size in others)
    ):
        return (*shape[:axis], -1, *shape[axis + 1 :])
    if kind.shape is not None:
        # -1 can't be inferred from a share without rows.
        shape = tuple(
            whole if entry == -1 else entry
            for entry, whole in zip(shape, kind.shape)
        )
    if None in shape:
        return None
    return (*shape[:axis], None, *shape[axis + 1 :])


def _may_be_one(tensor: Tensor, sharded: Sharded) -> bool:
    """Whether the sharded axis can have one element, broadcast to all rows."""
    if tensor.shape is None or tensor.shape[sharded.axis] == sharded.size:
        return False
    size = tensor.shape[sharded.axis]
    return size == 1 or not isinstance(size, int)
