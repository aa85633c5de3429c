"""The picture of the rooms is that of today's imports."""

import ast
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
    names = ", ".join(f"`{name}`" for name in test_import.PARTITIONER)
    assert f"In `partitioner`: {names}." in pages.text("docs/architecture.md")


def test_a_room_is_described_by_its_first_line(draw):
    lines = []
    for name in test_import.ROOMS:
        path = draw.PACKAGE / name / "__init__.py"
        if not path.exists():
            path = draw.PACKAGE / f"{name}.py"
        docstring = ast.get_docstring(ast.parse(path.read_text("utf-8")))
        lines.append(f"- `{name}`: {docstring.splitlines()[0]}\n")
    text = pages.text("docs/architecture.md")
    assert f"From above:\n\n{''.join(lines)}\n" in text


def test_arrows_that_follow_from_others_are_left_out(draw):
    graph = {"a": set(), "b": {"a"}, "c": {"a", "b"}}
    assert draw.direct(graph) == {"a": set(), "b": {"a"}, "c": {"b"}}
    assert draw.ranked(graph) == ["a", "b", "c"]


def test_a_circle_has_no_order(draw):
    with pytest.raises(ValueError, match="import each other"):
        draw.ranked({"a": {"b"}, "b": {"a"}})
