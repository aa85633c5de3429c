"""Faults in the order of collectives, each planted in a step that has none."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.rules.kinds import PARTIAL
from kerasmgpu.prove.order import check_order
from tests.prove import steps
from tests.prove.steps import collectives


def last_with_several(library):
    """The last body of a loop or branch with several collectives."""
    return [
        one
        for one in library[:-1]
        if sum(node.op.startswith("Coll") for node in one.node_def) > 4
    ][-1]


def constant(library, value):
    """A reference to a new constant of the step's function."""
    node = library[-1].node_def.add(name=f"planted_{value}", op="Const")
    node.attr["dtype"].type = tf.int32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return f"{node.name}:output:0"


def swap_keys(first, second):
    """Two collectives of a device take each other's place among the members."""
    first.input[3], second.input[3] = second.input[3], first.input[3]


def swapped(library):
    swap_keys(*collectives(library, "GPU:3")[2:4])


def swapped_inside(library):
    body = last_with_several(library)
    swap_keys(
        *[
            node
            for node in body.node_def
            if node.op.startswith("Coll") and node.device.endswith("GPU:2")
        ]
    )


def not_waiting(library):
    for node in collectives(library, "GPU:1"):
        for control in [one for one in node.input if "all_reduce" in one]:
            if control.startswith("^"):
                node.input.remove(control)


def left_out(library):
    """Another collective in the place of one: that of the others lacks it."""
    collectives(library, "GPU:2")[1].input[3] = constant(library, 99)


def of_too_many(library):
    for device in range(4):
        collectives(library, f"GPU:{device}")[1].input[1] = "planted_5:output:0"
    constant(library, 5)


def of_another_group(library):
    collectives(library, "GPU:0")[1].input[2] = constant(library, 77)


def merging_otherwise(library):
    collectives(library, "GPU:1")[1].attr["merge_op"].s = b"Max"


def twice_on_a_device(library):
    node = collectives(library, "GPU:1")[1]
    node.device = node.device.replace("GPU:1", "GPU:0")


def serving_no_result(library):
    library[-1].control_ret.clear()


def region(library):
    """The last loop or branch of the step's own function."""
    return [
        node
        for node in library[-1].node_def
        if node.op in ("While", "If") or node.op == "StatelessWhile"
    ][-1]


def rounds_at_the_same_time(library):
    region(library).attr["parallel_iterations"].i = 10


def loop_not_waiting(library):
    node = region(library)
    for control in [one for one in node.input if one.startswith("^")]:
        node.input.remove(control)


def not_waiting_for_the_loop(library):
    name = f"^{region(library).name}"
    for node in library[-1].node_def:
        if node.op.startswith("Coll") and name in node.input:
            node.input.remove(name)


PLANTED = [
    (steps.normalised, swapped, "disagree on the order: 'replica_"),
    (steps.loop, swapped_inside, "disagree on the order: 'replica_"),
    (steps.branch, swapped_inside, "disagree on the order: 'replica_"),
    (steps.of_two_types, not_waiting, "on GPU:1 of worker 0 'replica_1/"),
    (steps.normalised, left_out, "waits for 4 members and has 3: GPU:"),
    (steps.normalised, of_too_many, "waits for 5 members and has 4"),
    (steps.normalised, of_another_group, "waits for 4 members and has 1"),
    (steps.normalised, merging_otherwise, "differ in what they do ("),
    (steps.normalised, twice_on_a_device, "begins twice on a device"),
    (
        steps.normalised,
        serving_no_result,
        "TensorFlow may leave out 'replica_1",
    ),
    (steps.loop, rounds_at_the_same_time, "may run at the same time"),
    (steps.loop, loop_not_waiting, "may begin in either order"),
    (steps.loop, not_waiting_for_the_loop, "may begin in either order"),
    (steps.branch, not_waiting_for_the_loop, "may begin in either order"),
]


@pytest.mark.parametrize(
    "make, plant, sentence",
    PLANTED,
    ids=[f"{make.__name__}-{plant.__name__}" for make, plant, _ in PLANTED],
)
def test_a_planted_fault_is_named(make, plant, sentence):
    found = check_order([steps.written(make, change=plant)])
    assert any(sentence in fault for fault in found.faults), found.faults


@pytest.mark.parametrize(
    "settings",
    [
        {"shard": "weights", "micro_batches": 2, "num_workers": 2},
        pytest.param({}, marks=pytest.mark.nightly),
        pytest.param(
            {"shard": "weights", "num_workers": 2}, marks=pytest.mark.nightly
        ),
        pytest.param(
            {
                "num_replicas": 8,
                "shard": "weights",
                "num_workers": 4,
                "shard_over": 2,
                "micro_batches": 2,
            },
            marks=pytest.mark.nightly,
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("make", [steps.normalised, steps.loop, steps.branch])
def test_a_step_has_none(make, settings):
    number = settings.get("num_workers", 1)
    found = check_order(
        [steps.written(make, worker, **settings) for worker in range(number)]
    )
    assert not found.faults
    assert found.longest >= 4


@pytest.mark.slow
def test_loops_of_one_replica_have_none():
    settings = {"shard": "weights", "num_workers": 2}
    found = check_order(
        [steps.written(steps.stateful, n, **settings) for n in range(2)]
    )
    assert not found.faults


def test_a_fault_of_the_second_worker_is_named():
    first = steps.written(steps.normalised, 0, num_workers=2)
    second = steps.written(
        steps.normalised,
        1,
        num_workers=2,
        change=lambda library: swap_keys(*collectives(library, "GPU:1")[2:4]),
    )
    faults = check_order([first, second]).faults
    assert any(
        "disagree on the order" in fault and "of worker 1" in fault
        for fault in faults
    )


def test_keys_that_are_computed_are_told_apart():
    """Two exchanges of a table's rows take each other's place on a device."""
    settings = {"shard": "weights", "num_workers": 2}

    def plant(library):
        named = {node.name: node for node in library[-1].node_def}
        computed = [
            node
            for node in collectives(library, "GPU:0")
            if named[node.input[3].split(":")[0]].op != "Const"
        ]
        swap_keys(*computed[:2])

    first = steps.written(steps.table, 0, **settings)
    assert not check_order(
        [first, steps.written(steps.table, 1, **settings)]
    ).faults
    second = steps.written(steps.table, 1, change=plant, **settings)
    assert check_order([first, second]).faults


def test_a_worker_that_is_missing_is_told():
    step = steps.written(steps.normalised, num_workers=2)
    faults = check_order([step]).faults
    assert all("waits for" in fault for fault in faults) and faults


@pytest.mark.parametrize("make", [steps.loop, steps.branch])
def test_a_condition_that_replicas_may_not_share_is_told(make):
    step = steps.written(make)
    region = step.lowered.regions[0]
    if region.is_loop:
        (condition,) = region.bodies[0].outputs
        region.bodies[0].outputs[:] = [condition.moved(0, PARTIAL)]
    else:
        condition, *others = region.inputs
        region.inputs = (condition.moved(0, PARTIAL), *others)
    (fault,) = check_order([step]).faults
    assert "which replicas may not share" in fault
