"""Writes loops and branches.

A body of one replica is called once, or by each replica. A body of all replicas
takes the values of all replicas, with all-reduces and all-gathers inside.
"""

import itertools
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.instructions import Runs, Value
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.lowering.all_passes import finish
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.function_writer import References
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.rules.kinds import Rows
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.references import Reference

_numbers = itertools.count()

Emit = Callable[[Build, Lowered], None]


def write(parent: Build, region: Region, emit: Emit) -> None:
    """Writes a loop or branch in the function of `parent`."""
    bodies = _Bodies(parent, region, emit)
    if region.runs is Runs.ON_EACH:
        calls, names = [], []
        for place in range(parent.mesh.num):
            parent.take_turn(region, place)
            calls.append(bodies.call(parent, place, place))
            names.append(parent.writer.last)
        parent.note_ran(region, names)
        for number, one in enumerate(region.outputs):
            references: References = [made[number][0] for made in calls]
            if not one.is_local:
                references = parent.same(references[0])
            parent.give(one, references)
        return
    home = None if region.runs is Runs.TOGETHER else 0
    results = bodies.call(parent, home, 0)
    parent.note_ran(region, [parent.writer.last])
    for one, made in zip(region.outputs, results):
        parent.give(one, parent.same(made[0]) if len(made) == 1 else made)


class _Bodies:
    """Writes the bodies of a loop or branch when constructed, and then calls."""

    def __init__(self, parent: Build, region: Region, emit: Emit) -> None:
        self._node = region.node
        self._is_loop = region.is_loop
        self._given = [parent.references(one) for one in region.inputs]
        num = region.bodies[0].mesh.num
        # Numbers of references: one for each replica, or one in all.
        self._widths = [num if one else 1 for one in region.is_copied]
        if not self._is_loop:
            del self._widths[0]  # The first input selects the body.
        self._out_widths = self._widths
        if not self._is_loop:
            self._out_widths = [
                num if one.is_local else 1 for one in region.outputs
            ]
        builds, outputs = [], []
        for index, body in enumerate(region.bodies):
            build = self._body(parent, body, emit)
            widths = self._out_widths
            # A loop's first body is its condition: one boolean for all replicas.
            if self._is_loop and index == 0:
                widths = [1]
            builds.append(build)
            outputs.append(_outputs(build, body.outputs, widths))
        # All bodies are emitted, so all sizes that they take are known.
        self._requests = list(
            dict.fromkeys(
                key for build in builds for key in build.sizes.imports
            )
        )
        self._has_collectives = any(build.last_collective for build in builds)
        self._types = tuple(one.dtype for one in outputs[-1])
        functions = [
            self._function(build, index, given)
            for index, (build, given) in enumerate(zip(builds, outputs))
        ]
        self._dropped = _drop_unused(*functions) if self._is_loop else []
        self._names = [function.signature.name for function in functions]
        parent.library.extend(functions)

    def _body(self, parent: Build, body: Lowered, emit: Emit) -> Build:
        replicas = parent.replicas
        if body.mesh is not parent.mesh:
            replicas = Replicas(body.mesh)
        build = Build(body, parent.library, replicas, parent)
        for one, width in zip(body.given, self._widths):
            references: References = [
                build.writer.add_input("carried", one.tensor.dtype)
                for _ in range(width)
            ]
            if width == 1:
                references = build.same(references[0])
            build.give(one, references)
        emit(build, body)
        return build

    def _function(
        self, build: Build, index: int, outputs: list[Reference]
    ) -> function_pb2.FunctionDef:
        carried = [
            one
            for one in build.writer.inputs
            if one not in build.sizes.imports.values()
        ]
        extra = list(map(build.sizes.imported, self._requests))
        build.writer.inputs = carried + extra
        if self._is_loop and index == 1:
            outputs = outputs + extra
        name = f"kerasmgpu_{self._node.type}_{next(_numbers)}"
        build.writer.effects = build.effects()
        return finish(build, name, outputs)

    def call(
        self, parent: Build, place: int | None, first: int
    ) -> list[list[Reference]]:
        """Writes a call of the loop or branch.

        Args:
            place: Where it runs; `None` for one that all replicas run together.
            first: The replica whose references and sizes are passed; 0 if all
                replicas run it together.

        Returns:
            For each output of the node, a list of references: one for each
            replica that the bodies are written for, or one in all.
        """
        node = self._node
        inputs: list[Reference] = []
        # A branch takes its condition first, and the rest as a loop does.
        widths = self._widths if self._is_loop else [1, *self._widths]
        for references, width in zip(self._given, widths):
            places = [first] if width == 1 else range(width)
            inputs += [references[n] for n in places]
        for request in self._requests:
            if request[0] != "symbol":
                what, rows, number = cast(tuple[str, Rows, int], request)
                request = (what, rows, number + first)
            inputs.append(parent.sizes.exported(request))
        dropped = [(number, inputs[number]) for number in self._dropped]
        for number, _ in reversed(dropped):
            del inputs[number]
        # A call of all replicas waits for the control inputs of each of them.
        controls = parent.controls(node, HOST if place is None else place)
        if self._has_collectives:
            controls += parent.before_collective(HOST)
        attributes: dict[str, Any] = {"_lower_using_switch_merge": True}
        if self._is_loop:
            attributes["cond"], attributes["body"] = self._names
            # Workers must run the collectives of all iterations in one order.
            attributes["parallel_iterations"] = (
                1 if self._has_collectives else _parallel_iterations(node)
            )
        else:
            attributes["Tout"] = self._types
            if "Case" in node.type:
                attributes["branches"] = tuple(self._names)
            else:
                attributes["then_branch"] = self._names[0]
                attributes["else_branch"] = self._names[1]
        device = "" if place is None else parent.device(place)
        type = node.type.removeprefix("Stateless")
        made = parent.writer.op(
            type, inputs, device, node.name, controls, **attributes
        )
        made = list(made)
        for number, reference in dropped:
            made.insert(number, reference)
        remaining = iter(made)
        parent.note_done(node)
        if self._has_collectives:
            parent.note_collective(HOST, parent.writer.last)
        return [
            [next(remaining) for _ in range(width)]
            for width in self._out_widths
        ]


def _drop_unused(
    condition: function_pb2.FunctionDef, body: function_pb2.FunctionDef
) -> list[int]:
    """Removes from a loop's functions the variables that they only pass on.

    Seen on TensorFlow 2.18 and 2.21: where such a variable is the last thing to
    reach a device, nothing there sees that the loop is over (a loop in a branch
    that isn't taken, or one of no rounds), and the program waits for ever.

    Returns:
        Indices of the removed variables among the loop's inputs.
    """
    used = {
        reference
        for function in (condition, body)
        for node in function.node_def
        for reference in node.input
    }
    arguments, results = body.signature.input_arg, body.signature.output_arg
    returned = [body.ret[result.name] for result in results]
    dropped = [
        number
        for number, argument in enumerate(arguments)
        if argument.type == tf.resource.as_datatype_enum
        and argument.name not in used
        and returned[number] == argument.name
    ]
    for number in reversed(dropped):
        del body.ret[results[number].name]
        del condition.signature.input_arg[number]
        del arguments[number], results[number]
    return dropped


def _outputs(
    build: Build, outputs: list[Value], widths: list[int]
) -> list[Reference]:
    """Returns references to a body's outputs: for each, as many as its width."""
    return [
        build.references(one)[n]
        for one, width in zip(outputs, widths)
        for n in range(width)
    ]


def _parallel_iterations(node: Node) -> int:
    """Returns how many iterations of a loop can run at the same time.

    Only one if it has side effects. On one device, these are ordered by data:
    an iteration's draw waits for the rows whose shape it takes. Here sizes come
    from the host, often from before the loop, and the draws of all iterations
    would race: TensorFlow orders operations on variables, but not draws (2.18
    to 2.21).
    """
    if _has_effects(node):
        return 1
    return node.attr("parallel_iterations") or 10


def _has_effects(node: Node) -> bool:
    """Whether iterations have side effects that must keep their order."""
    return any(
        _has_effects(inner)
        or inner.is_stateful
        and not inner.bodies
        and {Trait.READ_ONLY, Trait.NO_STATE}.isdisjoint(inner.traits)
        for body in node.bodies
        for inner in body.nodes
    )
