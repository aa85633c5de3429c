"""Nothing is overwritten, half-written or gone on with under other flags."""

import json
import subprocess
import sys
import types

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared.run_folder import RunFolder


def open_folder(path, resume=False, **changes):
    settings = dict(epochs=3, seed=None, output_dir=str(path), resume=resume)
    settings.update(changes)
    folder = RunFolder(path, types.SimpleNamespace(**settings))
    folder.start()
    return folder


def save_nothing(checkpoint):
    (checkpoint / "weights").write_text("weights")


def test_the_flags_as_run_are_kept_without_where_and_how(tmp_path):
    open_folder(tmp_path / "new" / "run")
    text = (tmp_path / "new" / "run" / "flags.txt").read_text()
    assert text == "--epochs=3\n"


def test_a_run_that_never_started_leaves_the_folder_free(tmp_path):
    settings = types.SimpleNamespace(epochs=3, resume=False)
    RunFolder(tmp_path, settings)
    open_folder(tmp_path)


def test_a_second_run_never_overwrites_the_first(tmp_path):
    open_folder(tmp_path)
    with pytest.raises(InputError, match="not empty.*flags.txt.*--resume"):
        open_folder(tmp_path)
    (tmp_path / "flags.txt").rename(tmp_path / "notes.txt")
    with pytest.raises(InputError, match="not empty.*notes.txt"):
        open_folder(tmp_path)


def test_resume_needs_a_run_or_an_empty_folder(tmp_path):
    open_folder(tmp_path / "empty", resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("")
    with pytest.raises(InputError, match="no flags.txt"):
        open_folder(tmp_path / "other", resume=True)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(epochs=4), "Received: --epochs=4; .* had --epochs=3"),
        (dict(seed=1), "Received: --seed=1; .* had no --seed"),
        (dict(epochs=None), "Received: no --epochs; .* had --epochs=3"),
    ],
)
def test_resume_with_other_flags_names_the_flag(tmp_path, changes, message):
    open_folder(tmp_path)
    with pytest.raises(InputError, match=message):
        open_folder(tmp_path, resume=True, **changes)
    open_folder(tmp_path, resume=True)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written.*file/run"):
        open_folder(tmp_path / "file" / "run")


def test_the_last_whole_checkpoint_counts(tmp_path):
    folder = open_folder(tmp_path)
    assert folder.last_checkpoint() == (None, [])
    folder.save_checkpoint(1, [{"epoch": 1}], save_nothing)
    folder.save_checkpoint(2, [{"epoch": 1}, {"epoch": 2}], save_nothing)
    checkpoint, history = folder.last_checkpoint()
    assert (checkpoint / "weights").read_text() == "weights"
    assert [record["epoch"] for record in history] == [1, 2]
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == [
        ".lock",
        "checkpoint-000002",
        "flags.txt",
        "history.jsonl",
    ]
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


def test_a_checkpoint_that_was_cut_short_does_not_count(tmp_path):
    folder = open_folder(tmp_path)
    folder.save_checkpoint(1, [{"epoch": 1}], save_nothing)

    def killed(checkpoint):
        (checkpoint / "weights").write_text("wei")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.save_checkpoint(2, [{"epoch": 1}, {"epoch": 2}], killed)
    again = open_folder(tmp_path, resume=True)
    assert again.last_checkpoint()[0].name == "checkpoint-000001"
    again.save_checkpoint(2, [{"epoch": 1}, {"epoch": 2}], save_nothing)
    assert again.last_checkpoint()[0].name == "checkpoint-000002"


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    folder = open_folder(tmp_path)
    folder.write("result.json", "first")
    with pytest.raises(KeyboardInterrupt):
        with folder.complete("result.json") as temporary:
            temporary.write_text("sec")
            raise KeyboardInterrupt
    assert (tmp_path / "result.json").read_text() == "first"


@pytest.mark.parametrize("name", ["flags.txt", "history.json"])
def test_a_damaged_file_is_named(tmp_path, name):
    folder = open_folder(tmp_path)
    folder.save_checkpoint(1, [{"epoch": 1}], save_nothing)
    (path,) = tmp_path.rglob(name)
    path.write_bytes(b'[{"a": \xff\xfe')
    with pytest.raises(InputError, match=f"{name} is damaged .*can't go on"):
        open_folder(tmp_path, resume=True).last_checkpoint()


def test_files_of_others_are_left_alone(tmp_path):
    open_folder(tmp_path)
    (tmp_path / ".tmp-notes").write_text("mine")
    (tmp_path / ".tmp-checkpoint-000001").mkdir()
    open_folder(tmp_path, resume=True)
    hidden = [path.name for path in tmp_path.glob(".tmp-*")]
    assert hidden == [".tmp-notes"]


def test_a_folder_in_use_is_refused_and_its_user_is_named(tmp_path):
    code = (
        "import sys, types; from kerasmgpu.recipes.shared.run_folder import RunFolder;"
        "RunFolder(sys.argv[1], types.SimpleNamespace(resume=True)).start();"
        "print('has it', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        other.stdout.readline()
        with pytest.raises(
            InputError, match=f"in use .*process {other.pid} on"
        ):
            open_folder(tmp_path, resume=True)
        other.communicate()
    assert not (tmp_path / ".lock").exists()
    open_folder(tmp_path / "new")


def test_without_a_folder_nothing_is_kept():
    folder = RunFolder(None, types.SimpleNamespace(resume=False))
    folder.start()
    assert folder.path is None
    assert folder.last_checkpoint() == (None, [])
