"""Plans of an operation on two axes of a mesh that go together, or don't."""

from kerasmgpu.partitioner.rules.compatible import fits
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    LocalSizes,
    Rows,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Emit, Plan

ROWS, COLUMNS = Sharded(0, Rows(8)), Sharded(1, Rows(6))


def go_together(one, other):
    assert fits(one, [other]) == fits(other, [one])
    return fits(one, [other])


def test_different_axes_of_a_tensor_are_divided():
    assert go_together(Plan((ROWS,), (ROWS,)), Plan((COLUMNS,), (COLUMNS,)))


def test_one_axis_is_divided_once():
    others = Sharded(0, Rows(8, over=(1,)))
    assert not go_together(Plan((ROWS,), (ROWS,)), Plan((others,), (others,)))
    assert not go_together(
        Plan((ROWS,), (ROWS,)), Plan((REPLICATED,), (others,))
    )
    sizes = Plan((LocalSizes(ROWS),), (REPLICATED,))
    assert not go_together(sizes, Plan((LocalSizes(others),), (REPLICATED,)))


def test_a_slice_of_a_whole_result_counts_as_divided():
    whole = Plan((REPLICATED,), (REPLICATED,), sliced={0: ROWS})
    assert not go_together(whole, Plan((REPLICATED,), (ROWS,)))
    assert go_together(whole, Plan((COLUMNS,), (COLUMNS,)))


def test_parts_of_a_sum_can_be_divided():
    assert go_together(
        Plan((PARTIAL,), (PARTIAL,)), Plan((COLUMNS,), (COLUMNS,))
    )


def test_whole_values_go_with_everything():
    whole = Plan((REPLICATED,), (REPLICATED,))
    assert go_together(whole, Plan((ROWS,), (ROWS,), Emit.DRAW_ROWS))


def test_what_is_written_in_another_way_is_divided_along_one_axis():
    draws = Plan((ROWS,), (ROWS,), Emit.DRAW_ROWS)
    assert not go_together(draws, Plan((COLUMNS,), (COLUMNS,)))
    mean = Plan((ROWS,), (PARTIAL,), Emit.LOCAL_MEAN)
    other = Plan((COLUMNS,), (PARTIAL,), Emit.LOCAL_MEAN)
    assert go_together(mean, other)


def test_rows_of_a_table_are_divided_along_one_axis_columns_along_others():
    look_up = Plan((ROWS, REPLICATED), (PARTIAL,), Emit.LOOK_UP_OWN)
    assert go_together(look_up, Plan((REPLICATED, COLUMNS), (COLUMNS,)))
    assert go_together(look_up, Plan((COLUMNS, REPLICATED), (COLUMNS,)))
    others = Sharded(0, Rows(8, over=(1,)))
    assert not go_together(look_up, Plan((others, REPLICATED), (PARTIAL,)))
