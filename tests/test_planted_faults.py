"""Each planted fault changes a line that is there."""

import shutil

import pytest

from tests.planted_faults import FAULTS, ROOT, plant


@pytest.mark.parametrize("name", FAULTS)
def test_the_line_is_there_once(name, tmp_path):
    fault = FAULTS[name]
    path = tmp_path / "kerasmgpu" / fault.file
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "kerasmgpu" / fault.file, path)
    before = path.read_text("utf-8")
    plant(fault, tmp_path)
    assert path.read_text("utf-8") != before


def test_each_room_has_one():
    package = ROOT / "kerasmgpu"
    rooms = {
        path.name
        for path in package.iterdir()
        if path.is_dir() or not path.name.startswith("_")
    }
    without = rooms - {
        fault.file.partition("/")[0] for fault in FAULTS.values()
    }
    assert without - {"__pycache__", "py.typed"} == set()
