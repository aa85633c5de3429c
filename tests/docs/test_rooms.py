"""The picture of the rooms is that of today's imports."""

import importlib.util

import pytest

from tests import test_import
from tests.docs import pages

PATH = pages.ROOT / "docs/images/draw_rooms.py"


@pytest.fixture(scope="module")
def draw():
    specification = importlib.util.spec_from_file_location("draw_rooms", PATH)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_picture_is_todays(draw):
    """`python docs/images/draw_rooms.py` draws it anew."""
    assert PATH.with_name("rooms.svg").read_text("utf-8") == draw.picture()


def test_the_order_is_the_one_that_imports_are_checked_by(draw):
    rooms = draw.arrows(draw.PACKAGE, "kerasmgpu")
    assert draw.ranked(rooms) == test_import.ROOMS
    rooms = draw.arrows(draw.PACKAGE / "partitioner", "kerasmgpu.partitioner")
    assert draw.ranked(rooms) == test_import.PARTITIONER
    text = " ".join(pages.text("docs/architecture.md").split())
    for names in (test_import.ROOMS, test_import.PARTITIONER):
        assert ", ".join(f"`{name}`" for name in names) in text


def test_arrows_that_follow_from_others_are_left_out(draw):
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert draw.direct(graph) == {"a": set(), "b": {"a"}, "c": {"b"}}
    assert draw.ranked(graph) == ["a", "b", "c"]


def test_a_circle_has_no_order(draw):
    with pytest.raises(ValueError, match="import each other"):
        draw.ranked({"a": {"b"}, "b": {"a"}})
