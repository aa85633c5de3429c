"""Sizes that are unknown while a graph is traced."""

import pytest

from kerasmgpu.partitioner.step import sizes


@pytest.fixture
def symbols():
    return [sizes.of(sizes.Symbol(name)) for name in ("rows", "time")]


def test_arithmetic(symbols):
    rows, time = symbols
    assert (rows + 1) * (rows - 1) == rows * rows - 1
    assert rows * time == time * rows
    assert 2 * rows + rows == 3 * rows
    assert str(1 + 2 * rows * time) == "1 + 2*rows*time"


def test_what_depends_on_no_symbol_is_an_integer(symbols):
    rows, _ = symbols
    assert rows - rows == 0
    assert type((rows + 5) - rows) is int


def test_what_is_not_known_stays_so(symbols):
    rows, _ = symbols
    assert rows + None is None
    assert sizes.product([rows, None]) is None
    assert sizes.sum_of([None, 1]) is None


def test_exact_quotients(symbols):
    rows, time = symbols
    assert sizes.divide(6, 3) == 2
    assert sizes.divide(6 * rows * time, 2 * rows) == 3 * time
    assert sizes.divide(rows * time + 2 * rows, rows) == time + 2
    assert sizes.divide(rows * time + rows, time + 1) == rows
    assert sizes.divide(0, rows) == 0
    assert sizes.divide(0, rows + time) == 0


@pytest.mark.parametrize("divisor", [0, 4])
def test_quotients_of_integers_that_are_not_exact(divisor):
    assert sizes.divide(6, divisor) is None


def test_quotients_that_depend_on_values(symbols):
    rows, time = symbols
    assert sizes.divide(rows, 2) is None
    assert sizes.divide(rows + 1, rows) is None
    assert sizes.divide(rows * rows, time + 1) is None


def test_joined_symbols_are_one_number(symbols):
    rows, time = symbols
    total, product = rows + time, rows * time
    (first,), (second,) = rows.symbols, time.symbols
    first.join(second)
    assert total == 2 * rows
    assert product == rows * rows
    assert hash(time) == hash(rows)


def test_values(symbols):
    rows, time = symbols
    (first,), (second,) = rows.symbols, time.symbols
    values = {first: 3, second: 5}
    assert sizes.evaluate(2 * rows * time - rows + 4, values) == 31
    assert sizes.evaluate(7, values) == 7


def test_unknown_sizes_are_filled_in_from_a_shape_of_the_same_rank():
    assert sizes.filled_in((None, 3, None), (2, 4, None)) == (2, 3, None)
    assert sizes.filled_in((None, 3), (2,)) == (None, 3)
    assert sizes.filled_in((None, 3), None) == (None, 3)
