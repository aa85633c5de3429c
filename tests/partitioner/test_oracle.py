"""The oracle: equal programs have equal digests, a planted fault has another."""

from unittest import mock

import pytest
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.lowering import replicas
from tests.partitioner import oracle
from tests.partitioner.canonical import Canonical, difference
from tests.partitioner.program import Input, Program, Setting, Variable

PROGRAM = Program(
    {"x0": Input("normal", 0, (5, 3), "float32")},
    {"v0": Variable(Input("normal", 1, (3, 4), "float32"))},
    (
        "a = tf.nn.softmax(tf.matmul(x0, v0.read_value()))",
        "b = tf.reduce_mean(a, 0)",
        "v0.assign_add(tf.ones([3, 1]) * b)",
    ),
    ("a", "b"),
    Setting(3, static=True, shard=True),
)


@pytest.mark.parametrize("setting", oracle.SETTINGS)
def test_a_program_is_written_the_same_twice(setting):
    """Function names are numbered, so they differ; contents don't."""
    first, second = (oracle.library(PROGRAM, setting) for _ in range(2))
    assert first[-1].signature.name != second[-1].signature.name
    assert Canonical(first).digest() == Canonical(second).digest()
    assert Canonical(first).lines() == Canonical(second).lines()


def test_the_order_and_names_of_nodes_do_not_count():
    library = oracle.library(PROGRAM, "memory")
    before = Canonical(library).digest()
    function = library[-1]
    names = {node.name: f"n{n}" for n, node in enumerate(function.node_def)}

    def renamed(reference):
        name, colon, output = reference.removeprefix("^").partition(":")
        mark = "^" if reference.startswith("^") else ""
        return mark + names.get(name, name) + colon + output

    changed = function_pb2.FunctionDef()
    changed.CopyFrom(function)
    del changed.node_def[:]
    for node in reversed(function.node_def):
        added = changed.node_def.add()
        added.CopyFrom(node)
        added.name = names[node.name]
        added.input[:] = [renamed(one) for one in node.input]
    for results in (changed.ret, changed.control_ret):
        for key in list(results):
            results[key] = renamed(results[key])
    library[-1] = changed
    assert Canonical(library).digest() == before


def test_a_planted_fault_is_named_by_its_first_instruction(capsys):
    def short(size, number):
        return [n * (size // number) for n in range(number + 1)]

    found = {"one": oracle.digest_and_lines(PROGRAM, "memory")}
    assert oracle.compared(found, found, 1) == 0
    with mock.patch.object(replicas, "bounds_of", short):
        planted = {"one": oracle.digest_and_lines(PROGRAM, "memory")}
    assert oracle.compared(found, planted, 1) == 1
    assert "instruction " in capsys.readouterr().out


def test_difference_names_the_first_line():
    text = difference(["a", "b", "c"], ["a", "x", "c"])
    assert text == "instruction 1:\n- b\n+ x"
