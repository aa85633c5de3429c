"""Writes loops and branches.

Where all is whole, a loop runs once. Where replicas need nothing of each other
inside, each has a loop of its own, of the same function. Else there is one loop
over what all replicas have, with sums and gathers inside.
"""

import itertools

import tensorflow as tf

from kerasmgpu.partitioner.graph import ONLY_LOOK
from kerasmgpu.partitioner.kinds import (
    REPLICATED,
    ListOf,
    LocalSizes,
    Partial,
    is_local,
)
from kerasmgpu.partitioner.order import NO_STATE
from kerasmgpu.partitioner.places import HOST
from kerasmgpu.partitioner.rules import state
from kerasmgpu.partitioner.writing import (
    function_attribute,
    functions_attribute,
)

_numbers = itertools.count()


def write(parent, node, plan):
    """Writes a loop or a branch in the function of `parent`."""
    local = plan.is_local or any(map(_has_local, plan.details))
    together = _bodies_need_others(node, plan)
    if parent.replicas.total > 1 and (together or _has_updates(node)):
        _build_once(parent, node, plan, parent.replicas, None)
    elif local:
        _build_on_each(parent, node, plan)
    else:
        _build_once(parent, node, plan, parent.replicas.alone(), 0)


def _build_on_each(parent, node, plan):
    written = _Bodies(parent, node, plan, parent.replicas.alone())
    outputs = [[] for _ in node.outputs]
    for place in range(parent.replicas.num):
        made = written.call(parent, place, place)
        for references, (reference,) in zip(outputs, made):
            references.append(reference)
    for tensor, kind, references in zip(node.outputs, plan.gives, outputs):
        if not is_local(kind):
            references = parent.same(references[0])
        parent.give(tensor, kind, references)


def _build_once(parent, node, plan, replicas, place):
    written = _Bodies(parent, node, plan, replicas)
    made = written.call(parent, place, 0)
    for tensor, kind, references in zip(node.outputs, plan.gives, made):
        if len(references) == 1:
            references = parent.same(references[0])
        parent.give(tensor, kind, references)


class _Bodies:
    """The functions of a loop or branch, and calls of them."""

    def __init__(self, parent, node, plan, replicas):
        self._node, self._plan = node, plan
        self._is_loop = "While" in node.type
        self._given = parent.wanted(node, plan)
        carried = slice(None) if self._is_loop else slice(1, None)
        self._widths = [
            _width(kind, references, replicas)
            for kind, references in zip(plan.wants, self._given)
        ][carried]
        builds = [
            self._body(parent, replicas, body, plans, plan.wants[carried])
            for body, plans in zip(node.bodies, plan.details)
        ]
        self._out_widths = self._widths
        if not self._is_loop:
            self._out_widths = [
                replicas.num if is_local(kind) else 1 for kind in plan.gives
            ]
        outputs = [
            self._outputs(build, index) for index, build in enumerate(builds)
        ]
        # Now all has been asked for that the bodies don't know themselves.
        self._requests = list(
            dict.fromkeys(
                key for build in builds for key in build.sizes.imports
            )
        )
        self._has_collectives = False
        for build in builds:
            if build.last_collective:
                self._has_collectives = True
                # What comes after in the function around waits for them.
                for where in build.last_collective:
                    parent.last_collective.setdefault(where, None)
        self._types = [dtype for _, dtype in outputs[-1]]
        functions = [
            self._function(build, index, given)
            for index, (build, given) in enumerate(zip(builds, outputs))
        ]
        self._dropped = _drop_unused(*functions) if self._is_loop else []
        self._names = [function.signature.name for function in functions]
        parent.library.extend(functions)

    def _body(self, parent, replicas, body, plans, kinds):
        build = type(parent)(
            body,
            plans,
            replicas,
            parent.library,
            parent,
            parent.compiles(self._node),
        )
        for tensor, kind, width in zip(body.inputs, kinds, self._widths):
            references = [
                build.writer.add_input("carried", tensor.dtype)
                for _ in range(width)
            ]
            if width == 1:
                references = build.same(references[0])
            build.give(tensor, kind, references)
        build.run()
        return build

    def _outputs(self, build, index):
        """References to what a body returns, and their types."""
        if self._is_loop and index == 0:
            (tensor,) = build.graph.outputs
            return [(build.want(tensor, REPLICATED)[0], tensor.dtype)]
        outputs = []
        for tensor, kind, width in zip(
            build.graph.outputs, self._plan.gives, self._out_widths
        ):
            references = build.want(tensor, kind)
            outputs += [(references[n], tensor.dtype) for n in range(width)]
        return outputs

    def _function(self, build, index, outputs):
        carried = [
            pair
            for pair in build.writer.inputs
            if pair[0] not in build.sizes.imports.values()
        ]
        extra = [
            (build.sizes.imported(key), tf.int32) for key in self._requests
        ]
        build.writer.inputs = carried + extra
        if self._is_loop and index == 1:
            outputs = outputs + extra
        name = f"kerasmgpu_{self._node.type}_{next(_numbers)}"
        build.writer.effects = build.effects()
        return build.function(name, outputs)

    def call(self, parent, place, first):
        """Writes a call.

        Args:
            parent: The `Build` of the function that it is in.
            place: Where it runs; `None` for one that all replicas run together.
            first: The replica whose references are passed, where there is one.

        Returns:
            For each output of the node, a list of references.
        """
        node = self._node
        inputs, types = [], []
        # A branch takes its condition first, and the rest as a loop does.
        widths = self._widths if self._is_loop else [1, *self._widths]
        for tensor, references, width in zip(node.inputs, self._given, widths):
            places = [first] if width == 1 else range(width)
            inputs += [references[n] for n in places]
            types += [tensor.dtype] * width
        types = types if self._is_loop else types[1:]
        for request in self._requests:
            if request[0] != "symbol":
                what, rows, number = request
                request = (what, rows, number + first)
            inputs.append(parent.sizes.exported(request))
            types.append(tf.int32)
        dropped = [(number, inputs[number]) for number in self._dropped]
        for number, _ in reversed(dropped):
            del inputs[number], types[number]
        # What all run together waits for what each of them has to do before.
        controls = parent.controls(node, HOST if place is None else place)
        if self._has_collectives:
            controls += filter(None, parent.last_collective.values())
        attributes = {"_lower_using_switch_merge": True}
        if self._is_loop:
            attributes |= {
                "T": types,
                "cond": function_attribute(self._names[0]),
                "body": function_attribute(self._names[1]),
                "parallel_iterations": _parallel_iterations(node),
            }
        else:
            attributes |= {"Tin": types, "Tout": self._types}
            if "Case" in node.type:
                attributes["branches"] = functions_attribute(self._names)
            else:
                attributes["Tcond"] = node.inputs[0].dtype
                attributes["then_branch"] = function_attribute(self._names[0])
                attributes["else_branch"] = function_attribute(self._names[1])
        device = "" if place is None else parent.device(place)
        type = node.type.removeprefix("Stateless")
        made = list(
            parent.writer.op(
                type, inputs, attributes, device, node.name, controls
            )
        )
        for number, reference in dropped:
            made.insert(number, reference)
        made = iter(made)
        parent.note_done(node)
        if self._has_collectives:
            for where in parent.last_collective:
                parent.last_collective[where] = parent.writer.last
        return [
            [next(made) for _ in range(width)] for width in self._out_widths
        ]


def _drop_unused(condition, body):
    """Takes the variables that a loop only passes on from its functions.

    Seen on TensorFlow 2.18 and 2.21: where such a variable is the last thing to
    reach a device, nothing there sees that the loop is over (a loop in a branch
    that isn't taken, or one of no rounds), and the program waits for ever.

    Returns:
        Their numbers among what the loop carries.
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


def _width(kind, references, replicas):
    """References that a loop carries for a tensor: one, or one per replica."""
    if replicas.num == 1:
        return 1
    if is_local(kind) or len(set(references)) > 1:
        return replicas.num
    return 1


def _has_local(plans):
    return any(plan.is_local for plan in plans.nodes.values())


def _bodies_need_others(node, plan):
    """Whether the bodies of a loop or branch need what other replicas have."""
    wanted = [plan.gives] * len(node.bodies)
    if "While" in node.type:
        wanted[0] = (REPLICATED,)  # The condition's.
    return any(
        _needs_others(body, plans, wants)
        for body, plans, wants in zip(node.bodies, plan.details, wanted)
    )


def _needs_others(body, plans, wanted):
    """Whether a body needs what other replicas have to give what is wanted."""
    pairs = list(zip(body.outputs, wanted))
    for node, plan in plans.nodes.items():
        pairs += zip(node.inputs, plan.wants)
        if node.is_stateful and not node.bodies:
            if node.type not in state.COPIES:
                return True
        if node.bodies and _bodies_need_others(node, plan):
            return True
    return any(_is_from_others(tensor, want, plans) for tensor, want in pairs)


def _is_from_others(tensor, want, plans):
    # A part of a sum that is needed whole is a part as it is made.
    made = plans.nodes.get(tensor.node)
    kind = made.gives[tensor.index] if made else plans.kinds[tensor]
    if want == kind or isinstance(want, LocalSizes) or isinstance(kind, ListOf):
        return False
    # Only the first of all replicas has a whole value as its part of a sum.
    is_whole = kind == REPLICATED or tensor in plans.free
    return isinstance(want, Partial) or not is_whole


def _parallel_iterations(node):
    """How many iterations of a loop may run at a time.

    On one device data order effects: the draw of an iteration waits for the
    rows whose shape it takes. Here sizes come from the host, often from before
    the loop, and the draws of all iterations would race. TensorFlow orders what
    happens to variables, but no draws (2.18 to 2.21).
    """
    if _has_effects(node):
        return 1
    return node.attr("parallel_iterations") or 10


def _has_effects(node):
    """Whether the order of iterations matters for more than what they return."""
    return any(
        _has_effects(inner)
        or inner.is_stateful
        and not inner.bodies
        and inner.type not in ONLY_LOOK | NO_STATE
        for body in node.bodies
        for inner in body.nodes
    )


def _has_updates(node):
    """Whether a body changes variables, of which there may be several copies.

    A loop per replica would change one that has no copies several times.
    """
    return any(
        inner.type in state.COPIES - ONLY_LOOK or _has_updates(inner)
        for body in node.bodies
        for inner in body.nodes
    )
