"""Nothing is overwritten, half-written or gone on with under other flags."""

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
        (
            dict(epochs=2),
            "Received: --epochs=2; .* had --epochs=3, which may only be raised",
        ),
        (dict(seed=1), "Received: --seed=1; .* had no --seed"),
        (dict(epochs=None), "Received: no --epochs; .* had --epochs=3"),
    ],
)
def test_resume_with_other_flags_names_the_flag(tmp_path, changes, message):
    open_folder(tmp_path)
    with pytest.raises(InputError, match=message):
        open_folder(tmp_path, resume=True, **changes)
    open_folder(tmp_path, resume=True)


def test_a_run_may_be_made_longer(tmp_path):
    open_folder(tmp_path)
    longer = open_folder(tmp_path, resume=True, epochs=10)
    # Until it is known that it can go on, a run of 3 epochs may.
    open_folder(tmp_path, resume=True, epochs=3)
    longer.keep_flags()
    with pytest.raises(InputError, match="--epochs=3; .* had --epochs=10"):
        open_folder(tmp_path, resume=True)


def test_a_decay_over_the_whole_run_holds_its_length(tmp_path):
    open_folder(tmp_path, learning_rate_decay="cosine")
    with pytest.raises(
        InputError,
        match="--epochs=4; .* had --epochs=3, and --learning_rate_decay=cosine "
        "is over the whole run: start the longer one anew",
    ):
        open_folder(
            tmp_path, resume=True, epochs=4, learning_rate_decay="cosine"
        )


def test_where_lengths_are_compared_they_may_not_grow(tmp_path):
    open_folder(tmp_path)
    settings = types.SimpleNamespace(epochs=4, resume=True)
    with pytest.raises(InputError, match="--epochs=4; .* had --epochs=3$"):
        RunFolder(tmp_path, settings, may_grow=())


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written.*file/run"):
        open_folder(tmp_path / "file" / "run")


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    folder = open_folder(tmp_path)
    folder.write("result.json", "first")
    with pytest.raises(KeyboardInterrupt):
        with folder.complete("result.json") as temporary:
            temporary.write_text("sec")
            raise KeyboardInterrupt
    assert (tmp_path / "result.json").read_text() == "first"


def test_a_damaged_file_is_named(tmp_path):
    open_folder(tmp_path)
    (tmp_path / "flags.txt").write_bytes(b'[{"a": \xff\xfe')
    with pytest.raises(InputError, match="flags.txt is damaged .*can't go on"):
        open_folder(tmp_path, resume=True)


def test_files_of_others_are_left_alone(tmp_path):
    open_folder(tmp_path)
    names = [".tmp-notes", ".tmp-flags.txt.mine", ".tmp-probe", "notes.txt"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".tmp-folder").mkdir()
    open_folder(tmp_path, resume=True)
    for name in names:
        assert (tmp_path / name).read_text() == "mine"
    assert (tmp_path / ".tmp-folder").is_dir()


def test_checkpoints_of_an_earlier_version_are_named_and_stay(tmp_path):
    open_folder(tmp_path)
    weights = tmp_path / "checkpoint-000012" / "state.weights.h5"
    weights.parent.mkdir()
    weights.write_text("weights")
    with pytest.raises(
        InputError, match="checkpoint-000012, which an earlier version.*anew"
    ):
        open_folder(tmp_path, resume=True)
    assert weights.read_text() == "weights"


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
    folder.keep_flags()
    assert folder.path is None


def test_a_folder_in_a_store(tmp_path):
    pytest.importorskip("tests.faulty_store")
    url = f"faulty://{tmp_path}/run"
    folder = open_folder(url)
    assert (tmp_path / "run" / "flags.txt").read_text() == "--epochs=3\n"
    with folder.complete("model.keras") as temporary:
        temporary.write_text("model")
    folder.write_json("result.json", {"loss": 1})
    again = open_folder(url, resume=True, epochs=4)
    assert again.read_json("result.json") == {"loss": 1}
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["flags.txt", "model.keras", "result.json"]
    with pytest.raises(InputError, match="not empty.*flags.txt"):
        open_folder(url)
    with pytest.raises(InputError, match="Received: --epochs=2"):
        open_folder(url, resume=True, epochs=2)
