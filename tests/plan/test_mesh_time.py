"""The arithmetic of meshes, against numbers worked out by hand."""

import pytest
from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.plan import __main__ as command
from kerasmgpu.plan import sources
from kerasmgpu.plan.mesh_time import MeshAxis, axis_seconds, predict_mesh
from kerasmgpu.plan.step_time import (
    Link,
    Machines,
    Step,
    all_reduce_seconds,
)

FAST, SLOW = Link(100.0, 0.25), Link(10.0, 1.0)
# Of each device, one all-reduce of 400 bytes along the rows, and four of 600
# along the other axis.
ROWS = MeshAxis("batch", 2, sent_bytes=400, rings=1, divides_rows=True)
COLUMNS = MeshAxis("model", 4, sent_bytes=3600, rings=4, divides_rows=False)
STEP = Step(rows=64, compute_seconds=800.0, reduced_bytes=0.0)


def test_last_axes_lie_inside_a_machine():
    rows, columns = axis_seconds([ROWS, COLUMNS], Machines(4, FAST, SLOW))
    # Four devices share 10 bytes a second; two messages, each 1 s late.
    assert rows == 400 / 2.5 + 2 * 1.0
    # 4 all-reduces of 6 messages, each 0.25 s late.
    assert columns == 3600 / 100 + 24 * 0.25


def test_one_machine_never_meets_the_link_between():
    rows, columns = axis_seconds([ROWS, COLUMNS], Machines(8, FAST))
    assert (rows, columns) == (4.0 + 2 * 0.25, 36.0 + 24 * 0.25)


@pytest.mark.parametrize("algorithm", ["hierarchical", "ring"])
def test_an_axis_of_several_machines_is_the_all_reduce_of_replicas(algorithm):
    machines = Machines(4, FAST, SLOW, algorithm)
    # In a ring of 12, each sends 22 of 12 parts.
    axis = MeshAxis("batch", 12, 2200, 1, divides_rows=True)
    (seconds,) = axis_seconds([axis], machines)
    assert seconds == pytest.approx(all_reduce_seconds(1200.0, 12, machines))


def test_an_axis_may_lie_inside_and_between():
    rows = MeshAxis("batch", 4, sent_bytes=600, rings=1, divides_rows=True)
    columns = MeshAxis("model", 2, sent_bytes=0, rings=0, divides_rows=False)
    seconds, _ = axis_seconds([rows, columns], Machines(4, FAST, SLOW))
    # 400 bytes: a ring of two devices inside, and one of two machines whose
    # link two of them share.
    assert seconds == (400 / 100 + 2 * 0.25) + (400 / 5 + 2 * 1.0)


def test_an_axis_whose_neighbours_are_no_machine_lies_between():
    """(3, 2) on machines of three: their blocks are (3, 1)."""
    rows = MeshAxis("batch", 3, sent_bytes=400, rings=1, divides_rows=True)
    columns = MeshAxis("model", 2, sent_bytes=600, rings=1, divides_rows=False)
    found = axis_seconds([rows, columns], Machines(3, FAST, SLOW))
    # Three devices share the link of two machines: 600 bytes each.
    assert found == [400 / 100 + 4 * 0.25, 600 / (10 / 3) + 2 * 1.0]


def test_a_step_is_compute_and_all_sums():
    made = predict_mesh(STEP, Machines(4, FAST, SLOW), [ROWS, COLUMNS], 1 / 8)
    assert made.axis_seconds == {"batch": 162.0, "model": 42.0}
    assert made.step_seconds == 100.0 + 162.0 + 42.0
    assert made.limit == "along batch"
    assert made.speed_up == 800 / 304


def test_only_sums_along_rows_are_hidden_by_the_backward_pass():
    step = Step(64, 768.0, 0.0, overlap=1.0)
    made = predict_mesh(step, Machines(8, FAST), [ROWS, COLUMNS], 1 / 8)
    # 64 of 96 s hide all 4.5 s along the rows; the others stay.
    assert made.exposed_seconds == 42.0
    assert made.step_seconds == 96.0 + 42.0
    assert made.limit == "compute"


def test_the_device_with_most_rows_limits_a_step():
    step = Step(3, 800.0, 0.0)
    made = predict_mesh(step, Machines(8, FAST), [ROWS, COLUMNS], 1 / 8)
    # It has 2 of 3 rows, and a quarter of the columns.
    assert made.compute_seconds == pytest.approx(800 * 2 / 3 / 4)


def test_host_and_input_limit_a_step():
    machines = Machines(4, FAST, SLOW)
    step = Step(64, 800.0, 0.0, host_seconds=100.0, input_rows_per_second=0.1)
    made = predict_mesh(step, machines, [ROWS, COLUMNS], 1 / 8)
    # Four devices of a machine; all rows are read by each.
    assert (made.host_seconds, made.input_seconds) == (400.0, 640.0)
    assert (made.step_seconds, made.limit) == (640.0, "input")
    assert made.speed_up == 800 / 640


@pytest.mark.parametrize(
    "flag", ["batch_size_per_replica", "bytes", "parameters", "device_memory"]
)
def test_flags_that_are_not_for_meshes(flag):
    values = flags.FlagValues()
    command.define_flags(values)
    values(["plan", f"--{flag}=8"])
    measured = sources.Measured(STEP, sets_distribution=True)
    with pytest.raises(InputError, match=f"Received: --{flag}=8"):
        command._predict_mesh(values, measured, Machines(8, FAST))
