"""Buffers are counted while somebody holds them."""

from kerasmgpu.memory.ledger import Buffer, Ledger, recategorize, release


def test_peak_and_what_was_alive():
    ledger = Ledger()
    one = ledger.made(Buffer(10, "a"), 2)
    two = ledger.made(Buffer(5, "b"), 1)
    release(one)
    assert ledger.total == 15
    release(one)
    ledger.made(Buffer(3, "a"), 1)
    release(two)
    assert (ledger.total, ledger.peak) == (3, 15)
    assert ledger.at_peak == {"a": 10, "b": 5}


def test_a_list_keeps_its_elements():
    ledger = Ledger()
    element = ledger.made(Buffer(10, "a"), 1)
    whole = ledger.made(Buffer(0, "a", (element,)), 1)
    release(element)
    assert ledger.total == 10
    release(whole)
    assert ledger.total == 0


def test_bytes_may_count_as_something_else():
    ledger = Ledger()
    buffer = ledger.made(Buffer(10, "a"), 1)
    recategorize(buffer, "b")
    ledger.made(Buffer(1, "a"), 1)
    assert ledger.at_peak == {"a": 1, "b": 10}
