"""The oracle: equal programs have equal digests, a planted fault has another."""

import json
import os
import subprocess
import sys
from unittest import mock

import pytest
from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.lowering import all_passes, exchanges, replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.strategies import recomputation
from tests.partitioner import oracle, oracle_steps
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


PROGRAM_SETTINGS = (*oracle.SETTINGS, *oracle.GROUPS)


@pytest.mark.nightly(but=3)
@pytest.mark.parametrize("setting", PROGRAM_SETTINGS)
def test_a_program_is_written_the_same_twice(setting):
    """Function names are numbered, so they differ; contents don't."""
    first, second = (oracle.library(PROGRAM, setting) for _ in range(2))
    assert first[-1].signature.name != second[-1].signature.name
    assert Canonical(first).digest() == Canonical(second).digest()
    assert Canonical(first).lines() == Canonical(second).lines()


def program_digest(setting):
    return oracle.digest_and_lines(oracle.library, PROGRAM, setting)


def step_digest(name, key):
    return oracle.digest_and_lines(oracle_steps.library, name, key)


def short(size, number):
    """Parts that miss the rows that are left over."""
    return [n * (size // number) for n in range(number + 1)]


def without(name):
    """A context in which the partitioner has one pass less."""
    left = [one for one in all_passes.PASSES if one.run.__name__ != name]
    assert len(left) == len(all_passes.PASSES) - 1
    return mock.patch.object(all_passes, "PASSES", left)


def everywhere(name, value):
    """A context in which a method of every mesh returns one value."""
    return mock.patch.object(Mesh, name, lambda *arguments: value)


SHORT = mock.patch.object(replicas, "bounds_of", short)

IN_PROGRAMS = {
    "memory": SHORT,
    "gpus": SHORT,
    "worker 0": mock.patch.object(Mesh, "reduces_on_host_first", False),
    "worker 1": everywhere("first_along", 0),
    "xla": without("cluster_for_xla"),
    oracle.XLA_FORM: without("cluster_for_xla"),
    "mesh": everywhere("position", 0),
    "mesh, worker 1": everywhere("number_of", 0),
    "groups": everywhere("position", 0),
    "groups, worker 1": everywhere("first_along", 0),
    "groups over workers": everywhere("first_along", 0),
}
IN_STEPS = {
    "whole, plain, memory": without("group_sums"),
    "whole, plain, xla": without("cluster_for_xla"),
    "optimizer, plain, worker 1 of 2": everywhere("first_along", 0),
    "weights, plain, gpus": without("order_gathers"),
    "weights, plain, worker 0 of 2": everywhere("first_along", 1),
    "embeddings, plain, gpus": mock.patch.object(
        exchanges, "bounds_of", lambda size, number: range(number + 1)
    ),
    "groups of 2, plain, gpus": everywhere("number_of", 0),
    "groups of 4, plain, worker 1 of 4": everywhere("number_of", 0),
    "mesh, plain, gpus": everywhere("number_of", 0),
    "optimizer, offload, gpus": without("offload"),
    "whole, recompute, gpus": mock.patch.object(recomputation, "_SMALL", 1),
    "whole, micro-batches, gpus": without("order_micro_batches"),
    "mesh, all, memory": without("gather_in_turns"),
}
"""A planted fault for all that a setting of `oracle_steps` is made of."""


def test_every_part_of_a_setting_has_a_fault():
    parts = zip(*(key.split(", ") for key in IN_STEPS))
    expected = oracle_steps.DIVIDED, oracle_steps.MORE, oracle_steps.PLACES
    assert list(map(set, parts)) == list(map(set, expected))
    assert set(IN_STEPS) <= set(oracle_steps.keys())
    assert set(IN_PROGRAMS) == set(PROGRAM_SETTINGS)


@pytest.mark.nightly(but=3)
@pytest.mark.parametrize("setting", PROGRAM_SETTINGS)
def test_a_fault_changes_the_digest_of_a_program(setting):
    check_fault(lambda: program_digest(setting), IN_PROGRAMS[setting])


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("key", IN_STEPS)
def test_a_fault_changes_the_digest_of_a_step(key):
    check_fault(lambda: step_digest("Adam", key), IN_STEPS[key])


def check_fault(written, fault):
    digest, _ = written()
    with fault:
        changed, _ = written()
    assert changed != digest
    # Neither is an error line.
    assert len(changed) == len(digest) == 16


SAMPLE = [("Adafactor", "mesh, all, gpus"), ("LSTM", "weights, plain, xla")]


def sample():
    """Digests that must be those of any process, by what they are of."""
    found = {key: program_digest(key)[0] for key in PROGRAM_SETTINGS}
    for name, key in SAMPLE:
        found[f"{name}, {key}"] = step_digest(name, key)[0]
    return found


@pytest.mark.slow
def test_digests_are_those_of_a_process_with_other_hashes():
    code = (
        "import json; from tests import conftest; "
        "from tests.partitioner.test_oracle import sample; "
        "print(json.dumps(sample()))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == sample()


def test_every_setting_is_written_by_several_models():
    chosen = oracle_steps.chosen()
    assert {key for _, key in chosen} == set(oracle_steps.keys())
    assert {name for name, _ in chosen} == set(oracle_steps.MODELS)
    assert len(chosen) == 2 * len(oracle_steps.keys())


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
    found = {"one": program_digest("memory")}
    assert oracle.compared(found, found, 1) == 0
    with mock.patch.object(replicas, "bounds_of", short):
        planted = {"one": program_digest("memory")}
    assert oracle.compared(found, planted, 1) == 1
    assert "instruction " in capsys.readouterr().out


def test_difference_names_the_first_line():
    text = difference(["a", "b", "c"], ["a", "x", "c"])
    assert text == "instruction 1:\n- b\n+ x"
