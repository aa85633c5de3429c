"""Canonical form of written functions: equal up to the names of their nodes."""

import graphlib
import hashlib
from collections import Counter

import tensorflow as tf

_MOST_CHARACTERS = 300


class Canonical:
    """The functions of a library by content.

    A node's digest is that of its operation, device, attributes and inputs.
    Names of nodes and functions, and the order of nodes, don't count.

    Args:
        library: List of `FunctionDef`s; the last one is the step.
    """

    def __init__(self, library):
        self._functions = {one.signature.name: one for one in library}
        self._known = {}
        self._main = library[-1].signature.name

    def digest(self):
        """The digest of the step."""
        return self._listed(self._main)[0]

    def lines(self):
        """The instructions of all functions, an operation a line.

        Operations are numbered in an order that their contents give.
        """
        self._listed(self._main)
        found = []
        for name in reversed(self._known):
            digest, lines = self._known[name]
            found += [f"function {digest}", *lines]
        return found

    def _listed(self, name):
        if name not in self._known:
            self._known[name] = self._list(self._functions[name])
        return self._known[name]

    def _list(self, function):
        nodes = {node.name: node for node in function.node_def}
        arguments = {
            argument.name: f"argument {number}"
            for number, argument in enumerate(function.signature.input_arg)
        }
        digests, texts = {}, {}

        def source(reference):
            name, _, output = reference.removeprefix("^").partition(":")
            if name in arguments:
                return arguments[name]
            return f"{digests[name]}:{output}"

        before = {
            name: {_name(one) for one in node.input} & nodes.keys()
            for name, node in nodes.items()
        }
        order = list(graphlib.TopologicalSorter(before).static_order())
        for name in order:
            node = nodes[name]
            inputs = [source(one) for one in node.input if one[0] != "^"]
            controls = sorted(
                source(one) for one in node.input if one[0] == "^"
            )
            texts[name] = " ".join(
                [node.op, node.device, self._attributes(node), *inputs]
                + ["after", *controls]
            )
            digests[name] = _digest(texts[name])
        results = [
            source(function.ret[argument.name])
            for argument in function.signature.output_arg
        ]
        effects = sorted(digests[one] for one in function.control_ret.values())
        types = [one.type for one in function.signature.input_arg]
        content = sorted(texts.values())
        digest = _digest(repr((types, content, results, effects)))
        return digest, self._numbered(order, before, nodes, digests)

    def _numbered(self, order, before, nodes, digests):
        # A stable order of levels: the longest path from the inputs, then the
        # content.
        level = {}
        for name in order:
            level[name] = 1 + max(
                (level[one] for one in before[name]), default=0
            )
        ranked = sorted(order, key=lambda one: (level[one], digests[one]))
        numbers = {name: number for number, name in enumerate(ranked)}

        def shown(reference):
            name, _, output = reference.partition(":")
            plain = name.removeprefix("^")
            if plain not in numbers:
                return "argument"
            return (
                "^" if name != plain else ""
            ) + f"%{numbers[plain]}:{output}"

        return [
            f"%{numbers[name]} = {nodes[name].op}("
            + ", ".join(map(shown, nodes[name].input))
            + f") on {nodes[name].device.rpartition('/')[2]} "
            + self._attributes(nodes[name])[:_MOST_CHARACTERS]
            for name in ranked
        ]

    def _attributes(self, node):
        return " ".join(
            f"{name}={self._attribute(node.attr[name])}"
            for name in sorted(node.attr)
        )

    def _attribute(self, value):
        kind = value.WhichOneof("value")
        if kind == "func":
            return self._function(value.func.name)
        if kind == "list" and value.list.func:
            return ",".join(self._function(one.name) for one in value.list.func)
        if kind == "tensor":
            array = tf.make_ndarray(value.tensor)
            return f"{array.dtype}{array.shape}{array.tolist()}"
        return value.SerializeToString(deterministic=True).hex()

    def _function(self, name):
        known = name in self._functions
        return self._listed(name)[0] if known else "traced"


def difference(one, other):
    """The first lines in which two lists of instructions differ.

    Digests of functions differ wherever anything inside does, and are skipped.
    """
    plain = [
        [line for line in lines if not line.startswith("function ")]
        for lines in (one, other)
    ]
    only = [Counter(plain[0]), Counter(plain[1])]
    for number, (a, b) in enumerate(zip(*plain)):
        if a != b:
            return f"instruction {number}:\n- {a}\n+ {b}"
    missing = list((only[0] - only[1]) + (only[1] - only[0]))
    return f"instruction {min(map(len, plain))}:\n- {missing[:1]}"


def _name(reference):
    return reference.removeprefix("^").partition(":")[0]


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]
