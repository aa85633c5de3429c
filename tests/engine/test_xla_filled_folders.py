"""A folder that was filled ahead must be for this machine; others need not."""

import pytest

from kerasmgpu.engine import xla_cache, xla_filled_folders, xla_process
from kerasmgpu.engine.xla_files import XlaFiles
from kerasmgpu.errors import InputError

HERE, THERE = {"TensorFlow": "2.21.0"}, {"TensorFlow": "2.18.0"}
DIFFER = "TensorFlow: 2.18.0 there, 2.21.0 here"
COMMAND = "my_module:build --replicas=4"


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(xla_filled_folders, "_said", set())


def test_one_for_other_versions_is_refused_with_what_differs(tmp_path):
    XlaFiles(tmp_path, THERE)
    xla_filled_folders.add_command(tmp_path, COMMAND)
    with pytest.raises(InputError) as caught:
        xla_filled_folders.look_into(tmp_path, HERE)
    assert DIFFER in str(caught.value)
    XlaFiles(tmp_path, HERE)
    xla_filled_folders.look_into(tmp_path, HERE)


@pytest.mark.parametrize("mark", ["[]", "{"])
def test_one_that_was_copied_in_part_is_refused(tmp_path, mark):
    (tmp_path / "compiled.json").write_text(mark)
    with pytest.raises(InputError, match="no programs there"):
        xla_filled_folders.look_into(tmp_path, HERE)


def test_what_is_there_is_said_once(tmp_path, caplog):
    caplog.set_level("INFO", "absl")
    xla_filled_folders.look_into(tmp_path / "none", HERE)
    assert not caplog.records
    XlaFiles(tmp_path, THERE)
    for _ in range(2):
        xla_filled_folders.look_into(tmp_path, HERE)
    (record,) = caplog.records
    assert f"devices: 0 ({DIFFER})." in record.getMessage()


def test_commands_are_kept_once_each(tmp_path):
    assert xla_filled_folders.commands_of(tmp_path) is None
    for command in (COMMAND, "other", COMMAND):
        xla_filled_folders.add_command(tmp_path, command)
    assert xla_filled_folders.commands_of(tmp_path) == [COMMAND, "other"]


def test_a_folder_that_the_user_names_is_looked_into(tmp_path, monkeypatch):
    """The default one is not."""
    default, named = tmp_path / "kerasmgpu/xla", tmp_path / "named"
    for folder in (default, named):
        folder.mkdir(parents=True, mode=0o700)
        xla_filled_folders.add_command(folder, COMMAND)
    process = xla_process.XlaProcess.__new__(xla_process.XlaProcess)
    monkeypatch.setattr(process, "expect", lambda *_: True)
    monkeypatch.setattr(xla_cache, "_why_not", None)
    monkeypatch.setattr(xla_cache, "_process", process)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(xla_cache.VARIABLE, raising=False)
    assert xla_cache.expect({"f"}, None, on_gpus=False) == {}
    with pytest.raises(InputError, match="filled by kerasmgpu compile"):
        xla_cache.expect({"f"}, named, on_gpus=False)
    monkeypatch.setenv(xla_cache.VARIABLE, str(named))
    with pytest.raises(InputError, match="filled by kerasmgpu compile"):
        xla_cache.expect({"f"}, None, on_gpus=False)


def test_a_program_that_is_compiled_all_the_same_is_told(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(xla_process.exit_waits, "add", lambda wait: None)
    process = xla_process.XlaProcess(tmp_path)
    process.expect({"kerasmgpu_compiled_1f"}, None, [COMMAND])
    (tmp_path / "1.pb").write_text("kerasmgpu_compiled_1f")
    assert process.keep_now() == 1
    assert f"`kerasmgpu compile {COMMAND}`" in caplog.text
    process._stop.set()
