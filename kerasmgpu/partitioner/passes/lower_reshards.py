"""Replaces each `Reshard` by communication, slices or recomputation."""

import itertools
from collections.abc import Sequence
from typing import cast

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.exchanges import AllToAll, ToOwners
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
    Restoring,
    SendRows,
    Slice,
    Value,
    alike,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region, values
from kerasmgpu.partitioner.rules import table
from kerasmgpu.partitioner.rules.compatible import are_nested, fits
from kerasmgpu.partitioner.rules.kinds import (
    KNOWN,
    PARTIAL,
    REPLICATED,
    Kept,
    ListOf,
    LocalSizes,
    Owned,
    Partial,
    PartlySummed,
    PerReplica,
    Replicated,
    Sharded,
    WithHalo,
    is_exchanged,
    is_moved,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record


def lower_reshards(program: Lowered) -> None:
    """Replaces each `Reshard` by instructions that make its output.

    An output that an earlier instruction has made is not made again.
    """
    lowering = Lowering(program)
    for instruction in program.instructions:
        if isinstance(instruction, Reshard):
            (wanted,) = instruction.outputs
            lowering.want(wanted)
        else:
            lowering.add(instruction)
        if isinstance(instruction, Region):
            for body in instruction.bodies:
                lower_reshards(body)
    program.instructions = _without_unused(lowering.instructions, program)


def _without_unused(
    instructions: Sequence[Instruction], program: Lowered
) -> list[Instruction]:
    """Leaves out what made parts of weights that are computed whole instead."""
    if not any(getattr(one, "restoring", None) for one in instructions):
        return list(instructions)
    (plans,), needed, kept = program.plans, set(program.outputs), []
    for one in reversed(instructions):
        if (
            isinstance(one, (AllGather, Operation, Slice))
            and one.outputs
            and needed.isdisjoint(one.outputs)
            and all(made.tensor in plans.stored for made in one.outputs)
        ):
            continue
        needed.update(one.inputs)
        kept.append(one)
    return kept[::-1]


class Lowering:
    """Builds the new instructions of a program, one after the other.

    Args:
        program: The program whose reshards are lowered.

    Attributes:
        instructions: The new ones.
        needed: Values that some instruction needs in another placement than that
            in which it is made.
    """

    def __init__(self, program: Lowered) -> None:
        self.instructions: list[Instruction] = []
        self.program = program
        self._made = dict.fromkeys(program.given)
        self._source = {one.tensor: one for one in program.given}
        self._begun: set[Value] = set()
        self.needed = {
            one
            for instruction in program.instructions
            if isinstance(instruction, Reshard)
            for one in instruction.outputs
        }

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction whose inputs are made; records its outputs."""
        self.instructions.append(instruction)
        for one in instruction.outputs:
            self._made[one] = None
            self._source.setdefault(one.tensor, one)

    def want(self, wanted: Value) -> Value:
        """Returns a value; makes it first if necessary."""
        if not self.is_made(wanted):
            self._make(wanted)
            self._made[wanted] = None
        return wanted

    def is_made(self, one: Value) -> bool:
        """Whether an instruction before makes a value, or it is passed."""
        return one in self._made

    def source_of(self, tensor: Tensor) -> Value | None:
        """Returns the value that an operation makes, or that is passed."""
        return self._source.get(tensor)

    def _make(self, wanted: Value) -> None:
        """Makes a value from its source, one mesh axis after the other."""
        tensor = wanted.tensor
        whole = self.program.whole(tensor)
        if _divides_twice(wanted):
            raise RuntimeError(
                "An axis of a tensor can be divided along one axis of the mesh. "
                f"Received: {tensor} in {wanted.placement}."
            )
        if wanted.has(LocalSizes):
            self._local_shape(wanted, whole)
            return
        source = self.source_of(tensor)
        if source is None or KNOWN in source.placement:
            if wanted == whole:
                self.instructions.append(KnownSizes((), (wanted,)))
                return
            source = whole
        if wanted.has(ListOf) or source.has(ListOf):
            self._from(Alias, source, wanted)
            return
        if wanted == whole:
            self._begun.add(whole)
        elif self._is_cut_of(whole, wanted):
            source = whole
        axis = _last_to_change(source, wanted)
        before = wanted.moved(axis, source.placement[axis])
        if _divides_twice(before):
            before = wanted.moved(axis, REPLICATED)
        if before != whole:  # The whole value might not be needed.
            self.want(before)
        self._along(axis, before, wanted)

    def _is_cut_of(self, whole: Value, wanted: Value) -> bool:
        """Whether a value is cut out of the whole one, which is needed, too.

        On a mesh of one axis, a part is scattered and the whole gathered.
        """
        is_needed = self.is_made(whole) or (
            len(wanted.placement) > 1
            and whole in self.needed
            and whole not in self._begun
        )
        return is_needed and all(
            isinstance(kind, (Replicated, Sharded, WithHalo))
            for kind in wanted.placement
        )

    def _along(self, axis: int, source: Value, wanted: Value) -> None:
        """Makes a value from one that differs from it along one mesh axis."""
        kind = wanted.placement[axis]
        whole = wanted.moved(axis, REPLICATED)
        if isinstance(kind, Sharded):
            if self._is_scattered(axis, source, wanted):
                self._scatter(axis, source, wanted)
            elif not self._made_locally(
                axis, wanted, kind
            ) and not self._sent_by_owners(axis, source, wanted):
                self.instructions.append(
                    Slice(
                        (self.want(whole),),
                        (wanted,),
                        _may_be_one(wanted.tensor, kind),
                    )
                )
        elif isinstance(kind, WithHalo):
            if not self._sent_by_owners(axis, source, wanted):
                self._from(Slice, self.want(whole), wanted)
        elif isinstance(kind, Owned):
            if not self._made_by_owners(axis, wanted, kind):
                own = self.want(wanted.moved(axis, kind.rows))
                numbers = self.program.whole(kind.numbers)
                numbers = self.want(numbers.moved(axis, kind.rows))
                self.instructions.append(ToOwners((own, numbers), (wanted,)))
        elif isinstance(kind, PerReplica):
            # A replica's part of a sum is computed from its own rows.
            if not isinstance(source.placement[axis], Partial):
                source = self.want(whole)
            self._from(Alias, source, wanted)
        elif isinstance(kind, Partial):
            # Of a maximum or minimum, every replica's part is the whole value.
            is_sum = kind.by == "sum"
            made = self.want(whole)
            self._from(FirstOnly if is_sum else Alias, made, wanted)
        else:
            self._whole(axis, source, wanted)

    def _sent_by_owners(self, axis: int, source: Value, wanted: Value) -> bool:
        """Makes a value of parts, from the replicas that have them.

        Returns:
            Whether that is possible and the whole value isn't there; if not,
            nothing is added.
        """
        plans, tensor = self.program.plans[axis], wanted.tensor
        kind = source.placement[axis]
        if not isinstance(kind, Sharded):
            kind = plans.kinds.get(tensor, REPLICATED)
        own, want = wanted.moved(axis, kind), wanted.placement[axis]
        whole = wanted.moved(axis, REPLICATED)
        if tensor in plans.free or self.is_made(whole):
            return False
        if is_moved(kind, want):
            self._from(SendRows, self.want(own), wanted)
            return True
        if (
            not is_exchanged(kind, want)
            or _divides_twice(own)
            or whole in self.needed
        ):
            return False
        self._from(AllToAll, self.want(own), wanted)
        return True

    def _scatter(self, axis: int, source: Value, wanted: Value) -> None:
        """Adds a reduce-scatter.

        Rows that are divided along some of the mesh axes that are planned
        together are then all-reduced along the others: only the rows of each
        replica are sent along these.
        """
        kind = cast(Sharded, wanted.placement[axis])
        mesh = self.program.mesh
        widens, made = mesh.total > 1, wanted
        if kind.rows.over != mesh.planning_axes[axis]:
            partly = PartlySummed(kind.axis, kind.rows, kind.outer, kind.inner)
            tensor = wanted.tensor
            if widens and tensor.is_narrow:  # Sums are rounded once.
                tensor = alike(tensor, widens)
            made = Value(tensor, wanted.moved(axis, partly).placement)
        self.instructions.append(ReduceScatter((source,), (made,), widens))
        if made != wanted:
            self.instructions.append(
                AllReduce((made,), (wanted,), "sum", widens)
            )

    def _is_scattered(self, axis: int, source: Value, wanted: Value) -> bool:
        """Whether to make a value by a reduce-scatter of a partial sum.

        Not if the whole sum is made already. Between workers, and with
        micro-batches, only for sharded variables of known size: TensorFlow
        caches the shape of a collective.
        """
        tensor, kind = wanted.tensor, cast(Sharded, wanted.placement[axis])
        mesh = self.program.mesh
        is_static = is_of_variable(kind) and tensor.num_bytes < float("inf")
        is_needed = self.program.plans[axis].kinds.get(tensor) == kind
        return (
            source.placement[axis] == PARTIAL
            and is_needed
            and kind.outer == 1
            and (
                is_static
                or (mesh.num == mesh.total)
                and mesh.micro_batches == 1
            )
            and not self.is_made(wanted.moved(axis, REPLICATED))
        )

    def _from(
        self, type: type[Instruction], source: Value, wanted: Value
    ) -> None:
        self.instructions.append(type((source,), (wanted,)))

    def _whole(self, axis: int, source: Value, wanted: Value) -> None:
        """Makes a value whole: by gathering, reducing or recomputing it."""
        tensor, plans = wanted.tensor, self.program.plans[axis]
        kind = source.placement[axis]
        if isinstance(kind, Kept):
            raise InputError(
                f"{tensor} is what cuDNN keeps for a gradient on each GPU, and "
                "can't be put together. Received: a step that reads it; give "
                "its layer use_cudnn=False."
            )
        part = wanted.moved(axis, plans.kinds.get(tensor, REPLICATED))
        if (
            is_of_variable(part.placement[axis])
            and not _divides_twice(part)
            and self._is_scattered(axis, source, part)
        ):
            # Each replica needs its own part of it, too.
            self._from(AllGather, self.want(part), wanted)
        elif isinstance(kind, (PerReplica, Partial)):
            widens = self.program.mesh.total > 1
            self.instructions.append(
                AllReduce((source,), (wanted,), kind.by, widens)
            )
        elif tensor not in plans.free or not self._recomputed(axis, wanted):
            if not self._restored(source, wanted):
                self._from(AllGather, source, wanted)

    def _restored(self, source: Value, wanted: Value) -> bool:
        """Gathers what variables hold, if that has fewer bytes than a value.

        An `int8` kernel, for example, is cast and scaled on each replica.

        Returns:
            Whether that is possible; if not, nothing is added.
        """
        plans, tensor = self.program.plans[0], wanted.tensor
        stored = plans.stored.get(tensor, (tensor,))
        if (
            source.placement != (plans.kinds[tensor],)
            or sum(one.num_bytes for one in stored) >= tensor.num_bytes
        ):
            return False
        nodes: dict[Node, None] = {}
        whole: dict[Tensor, None] = {}

        def restore(one: Tensor) -> None:
            for given, want in zip(
                one.node.inputs, plans.nodes[one.node].wants
            ):
                if given in stored or given.node in nodes:
                    continue
                if plans.is_restored(given, want):
                    restore(given)
                else:
                    whole[given] = None
            nodes[one.node] = None

        restore(tensor)
        parts = [Value(one, (plans.kinds[one],)) for one in stored]
        others = [self.want(self.program.whole(one)) for one in whole]
        self.instructions.append(
            AllGather(
                (*map(self.want, parts), *others),
                (wanted,),
                restoring=Restoring((*stored, *whole), (*nodes,), tensor),
            )
        )
        return True

    def _recomputed(self, axis: int, wanted: Value) -> bool:
        """Adds the tensor's operation on whole inputs: nothing is sent.

        Returns:
            Whether that is possible; see `_operation`.
        """
        node = wanted.tensor.node
        operation = self._operation(axis, table.replicated(node), wanted)
        if operation is not None:
            self.add(operation)
        return operation is not None

    def _operation(
        self, axis: int, plan: Plan, wanted: Value
    ) -> Operation | None:
        """Returns the operation that makes a tensor, with another plan.

        Its inputs are made first.

        Args:
            axis: Mesh axis of the plan. On others, the plans are the node's.
            plan: The plan.
            wanted: What it is to make.

        Returns:
            `None`, and nothing is added, if it makes another value, or if the
            plan doesn't go with those of other axes.
        """
        tensor, node = wanted.tensor, wanted.tensor.node
        plans = tuple(
            plan if number == axis else of_axis.nodes[node]
            for number, of_axis in enumerate(self.program.plans)
        )
        made = tuple(values(node.outputs, [one.gives for one in plans]))
        others = (*plans[:axis], *plans[axis + 1 :])
        if made[tensor.index] != wanted or not fits(plan, others):
            return None
        wants = values(node.inputs, [one.wants for one in plans])
        return Operation(tuple(map(self.want, wants)), made, node, plans)

    def _made_locally(self, axis: int, wanted: Value, sharded: Sharded) -> bool:
        """Runs a replicated tensor's operation on each replica's rows only.

        A mask, for example, is then drawn, compared and cast by each replica
        for its own rows.

        Returns:
            Whether that is possible; if not, nothing is added.
        """
        tensor = wanted.tensor
        node, kinds = tensor.node, self.program.plans[axis].kinds
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
        operation = self._operation(axis, plan, wanted)
        if operation is None:
            return False
        self.instructions.append(operation)
        return True

    def _made_by_owners(self, axis: int, wanted: Value, kind: Owned) -> bool:
        """Runs an elementwise operation on the replicas that own the rows.

        Adam's gradients, for example, are sent to them, and squared there.

        Returns:
            Whether that is possible: the inputs are one sent tensor and
            scalars. If not, nothing is added.
        """
        tensor, kinds = wanted.tensor, self.program.plans[axis].kinds
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
        plan = table.Plan(tuple(wants), (kind,))
        operation = self._operation(axis, plan, wanted)
        if operation is None:
            return False
        self.instructions.append(operation)
        return True

    def _local_shape(self, wanted: Value, whole: Value) -> None:
        tensor = wanted.tensor
        if tensor.shape == () or isinstance(tensor.value, int):
            # The scalar -1 stands for a shape of unknown rank.
            self.instructions.append(Alias((self.want(whole),), (wanted,)))
            return
        kinds = [one for one in wanted.placement if isinstance(one, LocalSizes)]
        known = _local_sizes(kinds, tensor.value)
        inputs: tuple[Value, ...] = ()
        if known is None:
            inputs = (self.want(whole),)
        self.instructions.append(LocalShape(inputs, (wanted,), known))


def _last_to_change(source: Value, wanted: Value) -> int:
    """Returns the planning axis on which a value is changed last.

    Slices come first, then sums, then gathers, so that little is sent; but an
    axis of a tensor is gathered before it is sliced along another mesh axis, and
    before its rows go to their owners, of which each has another number.
    """
    pairs = list(zip(source.placement, wanted.placement))

    def rank(axis: int) -> tuple[int, int]:
        before, after = pairs[axis]
        if before == after:
            return -1, axis
        if isinstance(after, Owned):
            return 4, axis
        if not isinstance(after, (Sharded, WithHalo)):
            return (2 if isinstance(before, Sharded) else 1), axis
        is_taken = any(
            isinstance(other, Sharded)
            and other.axis == after.axis
            and not are_nested(other, after)
            for number, (other, _) in enumerate(pairs)
            if number != axis
        )
        if is_taken:
            return 3, axis
        return (2 if isinstance(before, Sharded) else 0), axis

    return max(range(len(pairs)), key=rank)


def _divides_twice(one: Value) -> bool:
    """Whether planning axes would divide an axis of a tensor, and aren't nested."""
    kinds = [kind for kind in one.placement if isinstance(kind, Sharded)]
    return any(
        kind.axis == other.axis and not are_nested(kind, other)
        for kind, other in itertools.combinations(kinds, 2)
    )


def _local_sizes(kinds: Sequence[LocalSizes], shape: object) -> tuple | None:
    """Returns `LocalShape.sizes`; `None` if a size is not known by symbol."""
    if not isinstance(shape, tuple):
        return None
    axes = [kind.sharded.axis for kind in kinds]
    others = [size for axis, size in enumerate(shape) if axis not in axes]
    if (
        len(set(axes)) == 1
        and all(kind.may_infer for kind in kinds)
        and sizes.are_integers(tuple(others))
        and all(size > 0 for size in others)
    ):
        return tuple(
            -1 if axis in axes else size for axis, size in enumerate(shape)
        )
    for kind in kinds:
        if kind.shape is not None:
            # -1 can't be inferred from a share without rows.
            shape = tuple(
                whole if entry == -1 else entry
                for entry, whole in zip(shape, kind.shape)
            )
    if None in shape:
        return None
    return tuple(
        None if axis in axes else size for axis, size in enumerate(shape)
    )


def _may_be_one(tensor: Tensor, sharded: Sharded) -> bool:
    """Whether the sharded axis can have one element, broadcast to all rows."""
    if tensor.shape is None or tensor.shape[sharded.axis] == sharded.size:
        return False
    size = tensor.shape[sharded.axis]
    return size == 1 or not isinstance(size, int)
