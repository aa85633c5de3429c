"""Places, positions and lines of meshes, worked out by hand."""

import pytest

from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Rows
from kerasmgpu.replica_arithmetic import block_of


def mesh(axes, num, worker=0, num_workers=1):
    devices = [f"CPU:{number}" for number in range(num)]
    return Mesh.on(devices, "CPU:0", worker, num_workers, axes=axes)


def lines(mesh, *along):
    return [list(places) for places in mesh.lines(along)]


def test_one_axis_is_a_line_of_all_replicas():
    one = mesh((), 3, worker=1, num_workers=2)
    assert (
        one.num_axes == 1 and one.size((0,)) == 6 and one.first_along((0,)) == 3
    )
    assert lines(one, 0) == [[0, 1, 2]]
    assert one.axes == (6,) and one.planning_axes == ((0,),)


def test_places_are_numbered_in_c_order():
    two = mesh((2, 3), 6)
    assert lines(two, 0) == [[0, 3], [1, 4], [2, 5]]
    assert lines(two, 1) == [[0, 1, 2], [3, 4, 5]]
    assert [two.position(place, (0,)) for place in range(6)] == [
        0,
        0,
        0,
        1,
        1,
        1,
    ]
    assert [two.position(place, (1,)) for place in range(6)] == [
        0,
        1,
        2,
        0,
        1,
        2,
    ]


def test_three_axes():
    three = mesh((2, 2, 2), 8)
    assert lines(three, 1) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    line = three.line((1,), range(4, 8, 2))
    assert line.devices == ("CPU:4", "CPU:6")
    assert line.axes == (1, 2, 1) and line.total == 2


def test_rows_along_two_axes():
    """Eight replicas on two workers, rows along both axes of (4, 2)."""
    devices = [f"CPU:{number}" for number in range(4)]
    one = Mesh.on(
        devices, "CPU:0", 1, num_workers=2, axes=(4, 2), joins_axes=True
    )
    assert one.num_axes == 1 and one.size((0, 1)) == 8
    assert one.first_along((0, 1)) == 4
    assert [one.index(place, (0, 1)) for place in range(4)] == [4, 5, 6, 7]
    assert one.size((1,)) == 2 and one.size((0,)) == 4
    assert lines(one, 0, 1) == [[0, 1, 2, 3]]
    assert lines(one, 1) == [[0, 1], [2, 3]]
    assert lines(one, 0) == [[0, 2], [1, 3]]
    rows = Rows(5, are_of_variable=True, over=(1,))
    assert [one.part_of(rows, place) for place in range(4)] == [
        *((0, 3), (3, 5), (0, 3), (3, 5))
    ]
    between = one.line((0,), range(1, 4, 2))
    assert (between.worker, between.num_workers, between.total) == (1, 2, 4)


def test_micro_batches_along_two_axes():
    """Two devices along the last axis, two micro-batches of each."""
    devices = [f"CPU:{number}" for number in range(4)]
    one = Mesh.on(devices, "CPU:0", axes=(2, 2), joins_axes=True).split(2)
    assert lines(one, 1) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert one.num_devices((1,)) == 2
    rows = Rows(4, are_of_variable=True, over=(1,))
    assert one.num_parts(rows) == 2 and one.num_parts(Rows(9, over=(0, 1))) == 8
    assert [one.part_of(rows, place) for place in range(4)] == [
        *((0, 2), (2, 2), (2, 4), (4, 4))
    ]
    # All of one turn, and so one share per device.
    assert one.line((0,), range(2, 8, 4)).micro_batches == 1


def test_the_last_axes_lie_inside_a_worker():
    """Two workers of four devices: rows between them, the rest inside."""
    second = mesh((4, 2), 4, worker=1, num_workers=2)
    assert second.block == (2, 2) and second.blocks == (2, 1)
    assert second.first_along((0,)) == 2 and second.first_along((1,)) == 0
    assert lines(second, 0) == [[0, 2], [1, 3]]
    along_rows = second.line((0,), range(1, 4, 2))
    assert (along_rows.worker, along_rows.num_workers) == (1, 2)
    assert along_rows.total == 4 and along_rows.first == 2
    inside = second.line((1,), range(2, 4))
    assert (inside.worker, inside.num_workers, inside.total) == (0, 1, 2)
    assert second.number_of((0,), range(1, 4, 2)) == 1
    assert second.number_of((1,), range(2, 4)) == 3
    assert not second.has_lines_of_other_workers


def test_workers_of_one_device_are_at_all_positions():
    last = mesh((2, 2), 1, worker=3, num_workers=4)
    assert last.block == (1, 1) and last.blocks == (2, 2)
    assert [last.first_along((axis,)) for axis in (0, 1)] == [1, 1]
    assert last.number_of((0,), range(1)) == 1
    assert last.has_lines_of_other_workers


@pytest.mark.parametrize(
    "axes, num, block",
    [
        ((2, 4), 8, (2, 4)),
        ((2, 4), 4, (1, 4)),
        ((2, 4), 2, (1, 2)),
        ((4, 2), 4, (2, 2)),
        ((3, 2), 3, (3, 1)),
        ((2, 3), 2, (2, 1)),
        ((6, 6), 4, (2, 2)),
    ],
)
def test_blocks_of_workers(axes, num, block):
    assert block_of(axes, num) == block


def test_workers_of_three_on_a_mesh_of_three_by_two():
    """Each has one position along the last axis, and all along the first."""
    second = mesh((3, 2), 3, worker=1, num_workers=2)
    assert [second.index(place, (0,)) for place in range(3)] == [0, 1, 2]
    assert [second.index(place, (1,)) for place in range(3)] == [1, 1, 1]
    assert lines(second, 0) == [[0, 1, 2]] and len(lines(second, 1)) == 3
    line = second.line((1,), [2])
    assert (line.worker, line.num_workers, line.total) == (1, 2, 2)
    assert second.number_of((1,), [2]) == 2 and second.number_of((0,), [0]) == 1
    # A part for each axis of a variable, which can be along both mesh axes.
    assert second.part((4, 6), (1, 0), 2) == (slice(2, 4), slice(4, 6))
    first = mesh((3, 2), 6)
    rows = [first.part((8,), (0, 0), place)[0] for place in range(6)]
    assert [(one.start, one.stop) for one in rows] == [
        *((0, 2), (2, 4), (4, 5), (5, 6), (6, 7), (7, 8))
    ]


def test_parts_of_a_variable_are_those_of_the_axis():
    two = mesh((2, 3), 6)
    columns = Rows(7, are_of_variable=True, over=(1,))
    parts = [two.part_of(columns, place) for place in range(6)]
    assert parts == 2 * [(0, 3), (3, 5), (5, 7)]
    rows = Rows(7, are_of_variable=True, over=(0,))
    assert two.part_of(rows, 2) == (0, 4) and two.part_of(rows, 3) == (4, 7)
    assert rows != columns
    assert two.always_has_rows(Rows(2)) and not two.always_has_rows(Rows(1))


def test_a_line_has_the_parts_of_its_axis():
    """Rows keep the number of the mesh axis that they are divided along."""
    two = mesh((2, 2), 2, worker=1, num_workers=2)
    rows = Rows(5, are_of_variable=True, over=(1,))
    line = two.line((1,), two.lines((1,))[0])
    assert [line.part_of(rows, place) for place in (0, 1)] == [(0, 3), (3, 5)]
    along_rows = Rows(5, are_of_variable=True, over=(0,))
    assert two.line((0,), [0]).part_of(along_rows, 0) == (3, 5)
    assert line.num_along((1,)) == 2 and line.first_along((1,)) == 0
