"""Files that are there whole or not at all."""

import pytest

from kerasmgpu.commands import complete_files


def test_a_file_gets_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("before")
    with complete_files.complete(path) as temporary:
        temporary.write_text("after")
        assert temporary.suffix == ".json"
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "report.json"
    path.write_text("before")
    with pytest.raises(error):
        with complete_files.complete(str(path)) as temporary:
            temporary.write_text("half of")
            raise error
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_before_anything_is_written_is_the_one_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no/.tmp-report.json"):
        with complete_files.complete(tmp_path / "no/report.json") as temporary:
            temporary.write_text("")


def test_what_can_not_be_emptied_is_removed(tmp_path, monkeypatch):
    path = tmp_path / "model.h5"
    path.write_text("half")

    def refuse(path, length):
        raise PermissionError(path)

    monkeypatch.setattr("os.truncate", refuse)
    complete_files.discard(path)
    assert not path.exists()


def test_what_is_discarded_takes_no_space_while_it_is_open(tmp_path):
    """As HDF5 has its file open after an error."""
    path = tmp_path / "model.h5"
    with open(path, "wb") as file:
        file.write(b"0" * 10_000)
        file.flush()
        complete_files.discard(path)
        assert file.seek(0, 2) == 0
    assert not path.exists()
