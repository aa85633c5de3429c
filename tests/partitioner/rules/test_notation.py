"""Axes that are written as text."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.step.graph import Node, Tensor


def node(inputs, outputs):
    """A node with inputs and outputs of these shapes."""
    made = Node("any", "Any")
    for tensors, shapes in ((made.inputs, inputs), (made.outputs, outputs)):
        tensors += [
            Tensor(made, number, tf.float32, shape)
            for number, shape in enumerate(shapes)
        ]
    return made


CASES = {
    "letters correspond, and are summed where no output has them": (
        ("mk, kn -> mn", [(2, 3), (3, 4)], [(2, 4)]),
        ((("m", "k"), ("k", "n")), (("m", "n"),), ("k",)),
    ),
    "a rank that is unknown is that of the letters": (
        ("mk, kn -> mn", [None, (3, 4)], [None]),
        ((("m", "k"), ("k", "n")), (("m", "n"),), ("k",)),
    ),
    "another rank is no such operation": (
        ("mk, kn -> mn", [(2, 3, 5), (3, 4)], [(2, 4)]),
        None,
    ),
    "axes of dots correspond": (
        ("..._, * -> ...", [(2, 3, 4), (9,)], [(2, 3)]),
        (((-2, -1, None), None), ((-2, -1),), ()),
    ),
    "axes of dots are summed": (
        ("... ->", [(2, 3)], [()]),
        (((-2, -1),), ((),), (-2, -1)),
    ),
    "without a rank nobody knows how many axes dots are": (
        ("... -> ...", [None], [None]),
        None,
    ),
    "dots are as many axes in all terms": (
        ("...a, ...b -> ...", [(2, 3, 4), (3, 4)], [(2, 3)]),
        None,
    ),
    "a star takes the rest": (
        ("*, ..._ -> ...*", [(5, 6, 7), (2, 3, 1)], [(2, 3, 6, 7)]),
        ((None, (-2, -1, None)), ((-2, -1, None, None),), ()),
    ),
    "an output of unknown rank has no rest": (
        ("*, ..._ -> ...*", [(5, 6), (2, 1)], [None]),
        None,
    ),
    "inputs without a term are whole, and terms without an input nothing": (
        ("b*, b -> b*", [(2, 3)], [(2, 3)]),
        ((("b", None),), (("b", None),), ()),
    ),
    "inputs beyond the text are whole": (
        ("b* -> b*", [(2, 3), (2, 3)], [(2, 3)]),
        ((("b", None), None), (("b", None),), ()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_text_is_labels(name):
    (text, inputs, outputs), expected = CASES[name]
    found = axes(text)(node(inputs, outputs))
    if expected is None:
        assert found is None
    else:
        assert (found.inputs, found.outputs, found.sums) == expected


def test_axes_that_are_broadcast_have_no_label():
    rule = axes("...mk, ...kn -> ...mn", broadcasts=True)
    found = rule(node([(5, 1, 2, 3), (4, 3, 1)], [(5, 4, 2, 1)]))
    assert found.inputs == ((-2, None, "m", "k"), (-1, "k", "n"))
    assert found.outputs == ((-2, -1, "m", "n"),)
    # One row, of which nobody knows whether it is broadcast, is sharded.
    found = rule(node([(1, 2, 3), (1, 3, 1)], [(1, 2, 1)]))
    assert found.inputs == ((-1, "m", "k"), (-1, "k", "n"))


def test_without_a_rank_nobody_knows_which_axes_are_broadcast():
    rule = axes("...mk, ...kn -> ...mn", broadcasts=True)
    assert rule(node([None, (4, 3, 1)], [(4, 2, 1)])) is None
    assert rule(node([(4, 2, 3), (3, 1)], [None])).outputs == ((-1, "m", "n"),)


def test_other_fields_are_kept():
    found = axes("b -> b", linear=(0,), sizes={0: 0})(node([(2,)], [(2,)]))
    assert found.linear == (0,) and found.sizes == {0: 0}


@pytest.mark.parametrize("text", ["ab", "a -> b -> c", "a? -> b", "a.. -> a"])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ValueError, match=r'such as "\.\.\.mk, .* Received: '):
        axes(text)
