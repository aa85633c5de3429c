"""All workers, and all devices, run collectives in one order.

No job runs here: one process writes the functions of both workers of a job. In
each of them data and control dependencies must order a device's collectives
totally, and the order of their keys must be the same everywhere. Otherwise a
job would deadlock, or mix values that don't belong together.
"""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.partitioner.lowering.collectives import CollectiveReplicas
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.step.definitions import node_name
from kerasmgpu.strategies.sharding import Sharding
from tests.partitioner import oracle_steps
from tests.partitioner.dependencies import sources_of
from tests.prove import tables
from tests.strategies.sharded import pretended_worker
from tests.strategies.sharded_programs import PROGRAMS

NUM_WORKERS = 2
DEVICES = ("CPU:1", "CPU:2")
HOST = "CPU:0"
_REGIONS = {"While", "If", "Case"}


# What is written --------------------------------------------------------------


def written(make, micro_batches, shares_memory, in_shares, repeats):
    """The functions of all workers, of one trace.

    Args:
        make: Function, called in a strategy's scope, that returns a step and
            its arguments.
        micro_batches: Parts of each replica's rows.
        shares_memory: Whether devices share memory, as CPUs do.
        in_shares: Whether each replica is passed its own rows.
        repeats: Whether a step that runs out of memory would be run again.

    Returns:
        For each worker a list of `FunctionDef`s; the last one is the step.
    """
    with pretended_worker(0, NUM_WORKERS, shares_memory):
        strategy = kerasmgpu.MirroredStrategy(
            DEVICES,
            shard="weights",
            min_shard_bytes=0,
            micro_batches="auto" if repeats else micro_batches,
        )
        with strategy.scope():
            step, *arguments = make()
            specification = tf.nest.map_structure(
                lambda one: tf.TensorSpec([None, *one.shape[1:]], one.dtype),
                tuple(arguments),
            )
            number = len(tf.nest.flatten(specification))
            program = strategy.partitioned(step, name="step").program(
                specification, (in_shares,) * number
            )
        if repeats and micro_batches > 1:
            program = program.in_more_parts(micro_batches)
        libraries = [program.written().library]
    for index in range(1, NUM_WORKERS):
        with pretended_worker(index, NUM_WORKERS, shares_memory):
            replicas = CollectiveReplicas(
                dataclasses.replace(strategy.replicas.mesh, worker=index)
            )
            other = Program(
                program.trace,
                replicas.split(micro_batches),
                program.in_shares,
                in_more_parts=program.in_more_parts,
            )
            # Found by the first inference, which made the rows' symbols one.
            other._joins = program._joins
            libraries.append(other.written().library)
    return libraries


# What is ordered --------------------------------------------------------------


def orders(library, function=None):
    """For each device, the keys of its collectives in the order of their runs.

    Raises:
        AssertionError: If dependencies don't order them totally.
    """
    function = function or library[-1]
    nodes = {node.name: node for node in function.node_def}
    keys = {}
    for name, node in nodes.items():
        if node.op.startswith("Collective"):
            keys[name] = _key(nodes, node)
        elif node.op in _REGIONS:
            inner = _inner(library, node)
            if any(inner):
                # Rounds that overlap would share their keys.
                assert node.op != "While" or (
                    node.attr["parallel_iterations"].i == 1
                ), f"rounds of {name} overlap"
                keys[name] = (node.op, inner)
    on_host = [n for n in keys if _device(nodes[n]) == HOST]
    found = {}
    for device in DEVICES:
        # What a device runs is ordered with what its host runs.
        own = [n for n in keys if _device(nodes[n]) == device]
        needed = {n: sources_of(nodes, n) & keys.keys() for n in on_host + own}
        ordered = sorted(needed, key=lambda n: len(needed[n] & needed.keys()))
        for one, other in itertools.pairwise(ordered):
            assert one in needed[other], f"{other} doesn't wait for {one}"
        found[device] = [keys[name] for name in ordered]
    return found


def _key(nodes, node):
    """What TensorFlow matches collectives by, and what they must agree on."""
    _, size, group, instance = node.input[:4]
    return (
        node.op,
        node.attr["T"].type,
        node.attr["merge_op"].s,
        *(_number(nodes, reference) for reference in (size, group, instance)),
    )


def _number(nodes, reference):
    """A constant; the constant that a key of dynamic length is made of."""
    node = nodes[node_name(reference)]
    if node.op == "Const":
        return int(tf.make_ndarray(node.attr["value"].tensor))
    assert node.op in ("Add", "AddV2"), node.op
    (base,) = (r for r in node.input if nodes[node_name(r)].op == "Const")
    return "from", _number(nodes, base)


def _inner(library, node):
    """The collectives of a region's functions, which all devices share."""
    functions = {function.signature.name: function for function in library}
    names = [node.attr[name].func.name for name in ("cond", "body")]
    names += [
        node.attr[f"{name}_branch"].func.name for name in ("then", "else")
    ]
    names += [one.name for one in node.attr["branches"].list.func]
    return tuple(
        tuple(_same(orders(library, functions[name]))) for name in names if name
    )


def _same(by_device):
    """The order that all devices have."""
    first, *others = by_device.values()
    assert all(other == first for other in others)
    return first


def _device(node):
    """Of loops and branches that all replicas run together: the host."""
    found = node.device.partition("device:")[2]
    return found if found in DEVICES else HOST


def check(make, micro_batches, shares_memory, in_shares=False, repeats=False):
    """Asserts one order on all devices of all workers; returns it."""
    settings = (micro_batches, shares_memory, in_shares, repeats)
    one, other = map(_same, map(orders, written(make, *settings)))
    assert len(one) >= 2
    assert other == one
    return one


# Steps ------------------------------------------------------------------------


def of_keras(name):
    """Function that makes a Keras model's training step."""

    def make():
        keras.utils.set_random_seed(3)
        program = PROGRAMS[name]()
        model = program.model
        model.optimizer.build(model.trainable_variables)
        return model.train_step, (np.asarray(program.x), np.asarray(program.y))

    return make


def loops():
    """A loop in which all replicas communicate, between layers that do."""
    weights = [tf.Variable(tf.eye(4)) for _ in range(3)]

    def step(x):
        with tf.GradientTape() as tape:
            for weight in weights:
                x = tf.tanh(x @ weight)
            total = tf.zeros([4])
            for number in tf.range(3):
                total += tf.tanh(tf.reduce_sum(x * tf.cast(number, x.dtype), 0))
            loss = tf.reduce_sum(total * x)
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(0.1 * gradient)
        return loss

    return tf.autograph.experimental.do_not_convert(
        tf.autograph.to_graph(step)
    ), np.ones([8, 4], "float32")


QUICK = {
    ("convnet", 3, False, True),
    ("tables, adagrad", 2, True, True),
    ("weight decay", 1, False, True),
    ("jit compile", 2, False, False),
}
"""Steps of the quick tier."""

STEPS = [
    pytest.param(*step, marks=() if step in QUICK else pytest.mark.nightly)
    for number, name in enumerate(
        sorted(PROGRAMS.keys() - {"gan", "lora", "run eagerly"})
    )
    for place, step in enumerate(
        itertools.product([name], (1, 2, 3), (True, False), (True, False))
    )
    # A sixth of all settings for a program, another for the next one.
    if step in QUICK or (number + place) % 6 == 0
]


@pytest.mark.parametrize(
    ("name", "micro_batches", "shares_memory", "in_shares"), STEPS
)
def test_training_steps(name, micro_batches, shares_memory, in_shares):
    check(of_keras(name), micro_batches, shares_memory, in_shares)


AGAIN = [
    pytest.param(
        name,
        micro_batches,
        marks=() if name == "weight decay" else pytest.mark.nightly,
    )
    for number, name in enumerate(
        (
            "convnet",
            "tables, adagrad",
            "gpt",
            "gradient accumulation",
            "tables, clipnorm",
            "weight decay",
            "own weights",
        )
    )
    for micro_batches in (1 + number % 2,)
]


@pytest.mark.parametrize(("name", "micro_batches"), AGAIN)
def test_steps_that_may_run_again(name, micro_batches):
    """Workers agree to assign behind some collectives, and before others."""
    check(of_keras(name), micro_batches, True, repeats=True)


@pytest.mark.nightly(but=4)
@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("shares_memory", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
def test_loops_with_communication(micro_batches, shares_memory, repeats):
    order = check(loops, micro_batches, shares_memory, repeats=repeats)
    assert [key[0] for key in order].count("While") == 2


class _Attention(Sharding):
    """Some kernels and biases of attention are divided between two workers."""

    def __init__(self):
        super().__init__("weights", 0, lambda: (2, 4))

    def _axes(self, variable, reference):
        by_path = {"key/bias": (None, 0), "value/kernel": (None, 2)}
        return reference or by_path.get(variable.path.partition("/")[2])


def test_micro_batches_send_in_turns_along_an_inner_axis():
    """Gradients that are scattered along it have the turn of their rows."""
    step = tables.traced(oracle_steps.MODELS["transformer"])
    setting = Setting(
        num_replicas=8,
        layouts=_Attention(),
        num_workers=4,
        device_type="CPU",
        min_shard_bytes=0,
        micro_batches=2,
    )
    # If one had another's turn, nodes would wait for each other.
    assert WrittenStep(step, setting, 1, False).library
