"""Sizes as text."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.hardware import device_memory
from kerasmgpu.memory import memory_report


@pytest.mark.parametrize(
    "text, expected",
    [
        ("24GiB", 24 << 30),
        ("1.5 gib", 3 << 29),
        ("40GB", 40 * 10**9),
        ("A100-40GB", 40 * 10**9),
        ("rtx 4090", 24 * 10**9),
        ("100B", 100),
    ],
)
def test_parse(text, expected):
    assert device_memory.parse(text) == expected


@pytest.mark.parametrize("text", ["24", "GiB", "0GiB", "-1GiB", "A100", ""])
def test_neither_a_size_nor_a_name(text):
    with pytest.raises(InputError, match="such as 24GiB, or one of P100"):
        device_memory.parse(text)


def test_tensorflow_leaves_some_memory():
    assert device_memory.usable(24 << 30) == (24 << 30) - (1536 << 20)
    assert device_memory.usable(1000) == 900


@pytest.mark.parametrize(
    "num_bytes, text",
    [(0, "0 B"), (999, "999 B"), (1536, "1.5 KiB"), (5 << 40, "5 TiB")],
)
def test_sizes_as_text(num_bytes, text):
    assert memory_report.size(num_bytes) == text
