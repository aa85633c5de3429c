"""What is known of shapes and of small integers before the graph runs.

TensorFlow knows sizes that are numbers. Here sizes that depend on the batch are
followed as well, by symbol: an axis that TensorFlow doesn't know gets the size
that the rules of its operation say, or a symbol of its own.
"""

from kerasmgpu.partitioner import sizes
from kerasmgpu.partitioner.elements import Elements
from kerasmgpu.partitioner.rules import control_flow, integers, table

_MOST_PASSES = 20


def infer(graph, joins):
    """Sets `shape`, `value` and `element` of all tensors of a graph.

    Those of the inputs are given.

    Args:
        graph: `Graph`.
        joins: List to which pairs of symbols are added that must be equal when
            the graph runs: rows of two inputs that were put side by side.
    """
    inference = Inference(graph, joins)
    for number in range(_MOST_PASSES + 1):
        inference.infer(graph)
        if not inference.has_news(is_last=number == _MOST_PASSES - 1):
            return


class Inference:
    """Looks at a graph, and at those of its loops and branches.

    Args:
        graph: `Graph`.
        joins: See `infer`.
    """

    def __init__(self, graph, joins):
        self._joins = joins
        self._in_branch = 0
        self._elements = {}
        self._outer = {tensor.node for tensor in graph.inputs}
        self._outer.update(graph.nodes)

    def infer(self, graph):
        """Sets what is known of all tensors of a graph."""
        for node in graph.nodes:
            for tensor in node.outputs:
                tensor.shape, tensor.value = tensor.static, None
            if node.type in table.VALUES:
                _infer_values(node)
            if node.type in control_flow.FACTS:
                control_flow.FACTS[node.type](node, self)
            axes = _join_rows(node, None if self._in_branch else self._joins)
            if not all(_is_known(tensor) for tensor in node.outputs):
                _infer_shapes(node, axes)

    def infer_branch(self, graph):
        """Does so for what may not be run: it tells nothing of its inputs."""
        self._in_branch += 1
        self.infer(graph)
        self._in_branch -= 1

    def elements(self, node):
        """The `Elements` of the list that a node makes."""
        return self._elements.setdefault(node, Elements())

    def lasting(self, known):
        """A shape or value without sizes that only one loop knows."""
        if isinstance(known, tuple):
            return tuple(map(self.lasting, known))
        return known if self._is_lasting(known) else None

    def _is_lasting(self, size):
        if not isinstance(size, sizes.Size):
            return True
        return all(
            symbol.joined.source[0].node in self._outer
            for symbol in size.symbols
        )

    def has_news(self, is_last):
        """Whether the graph must be looked at again.

        Args:
            is_last: Whether it may be looked at only once more.
        """
        lists = [one for one in self._elements.values() if not one.is_joined]
        news = not is_last and any([one.guess() for one in lists])
        if not news:
            news = any([one.give_up(wholly=is_last) for one in lists])
            if news:
                for one in lists:
                    one.guess()
        for one in lists:
            one.forget()
        return news


def _infer_values(node):
    values = table.VALUES[node.type](node)
    if node.type not in integers.SEVERAL:
        if len(node.outputs) == 1:
            _set_value(node.outputs[0], values)
    elif values is not None:
        for tensor, value in zip(node.outputs, values):
            _set_value(tensor, value)


def _set_value(tensor, value):
    if isinstance(value, tuple):
        value = tuple(
            entry if sizes.fits(entry, tensor.dtype) else None
            for entry in value
        )
    elif not sizes.fits(value, tensor.dtype):
        value = None
    if isinstance(value, tuple) and len(tensor.shape or (None,)) != 1:
        value = None  # Several vectors, of which no entry is known.
    tensor.value = value
    # Where nothing is known of any entry, it need not be a vector.
    if isinstance(value, tuple) and set(value) != {None}:
        tensor.shape = (len(value),)


def _join_rows(node, joins):
    """Axes that have one label have one size; rows of inputs become equal.

    Unless `joins` is `None`.
    """
    axes = table.axes_of(node)
    if axes is None:
        return None
    found, joined = {}, False
    for label, size in axes.sizes_of_labels(node):
        if joins is None or not isinstance(size, sizes.Size):
            continue
        other = found.setdefault(label, size)
        if other != size and _join(other, size, joins):
            joined = True
    if not axes.stretches:
        _settle(node, axes)
    return table.axes_of(node) if joined else axes


def _settle(node, axes):
    """Without stretching, axes with one label have the size that is known."""
    known = {}
    for label, size in axes.sizes_of_labels(node):
        if size is not None:
            known.setdefault(label, []).append(size)
    for labels, tensor in zip(axes.inputs, node.inputs):
        if labels is not None and tensor.shape is not None:
            tensor.shape = tuple(
                min(known[label], key=_vagueness) if label in known else size
                for label, size in zip(labels, tensor.shape)
            )


def _vagueness(size):
    """A number is best, then rows, then what was known first."""
    if isinstance(size, int):
        return 0, 0
    latest = max(symbol.joined.id for symbol in size.symbols)
    return 1 if _has_rows(size) else 2, latest


def _join(one, two, joins):
    """Makes the rows in two sizes one, if they are the same but for that."""
    rows = [
        [symbol.joined for symbol in size.symbols if symbol.joined.is_rows]
        for size in (one, two)
    ]
    if len(rows[0]) != 1 or len(rows[1]) != 1:
        return False
    (first,), (second,) = rows
    one = sizes.divide(one, sizes.of(first))
    if one is None or one != sizes.divide(two, sizes.of(second)):
        return False
    joins.append((first, second))
    first.join(second)
    return True


def _is_known(tensor):
    return tensor.shape is not None and None not in tensor.shape


def _infer_shapes(node, axes):
    shapes = None
    if node.type in table.SHAPES:
        shapes = table.SHAPES[node.type](node)
    elif axes is not None:
        shapes = _shapes_by_axes(node, axes)
    for number, tensor in enumerate(node.outputs):
        inferred = None if shapes is None else shapes[number]
        if tensor.shape is None:
            tensor.shape = inferred
        else:
            tensor.shape = sizes.filled_in(tensor.shape, inferred)
        tensor.complete()


def _shapes_by_axes(node, axes):
    known = {}
    for label, size in axes.sizes_of_labels(node):
        if label not in known or size == known[label]:
            known[label] = size
        elif isinstance(size, int) and (size != 1 or not axes.stretches):
            known[label] = size
        elif not isinstance(known[label], int):
            if axes.stretches:
                known[label] = None  # Either may be 1.
            elif _has_rows(size):
                known[label] = size
    # Where no input has a label, all have the size 1 there, or no such axis.
    missing = 1 if axes.stretches else None
    return [
        tuple(
            None if label is None else known.get(label, missing)
            for label in labels
        )
        for labels in axes.outputs
    ]


def _has_rows(size):
    return size is not None and any(s.joined.is_rows for s in size.symbols)


def is_known(node):
    """Whether a node computes sizes that are written when they are needed.

    What it should wait for, a check of the same sizes say, runs all the same:
    operations with effects are needed for themselves.
    """
    return (
        len(node.outputs) > 0
        and node.type != "Const"
        and not node.bodies
        and not node.is_stateful
        and all(_is_known_value(tensor) for tensor in node.outputs)
    )


def _is_known_value(tensor):
    value = tensor.value
    if value is None or not tensor.dtype.is_integer:
        return False
    return not isinstance(value, tuple) or None not in value
