"""What one start has compiled, the next one takes from its folder."""

import collections
import os
import pathlib
import re
import subprocess
import sys

import pytest

from kerasmgpu.engine import xla_cache, xla_process
from tests.compile import programs

LINES = re.compile(
    r"(Entry saved|Loading cached entry) for.*kerasmgpu_compiled"
)


LARGE = pathlib.Path(__file__).with_name("xla_start.py")


def start(folder, program=programs.__file__, **variables):
    """Starts a training.

    Returns:
        `(numbers, compiled, loaded, log)`: the printed lists, the numbers of
        compiled and loaded functions on all devices, and the standard error.
    """
    process = subprocess.run(
        [sys.executable, program],
        env={
            **os.environ,
            xla_cache.VARIABLE: str(folder),
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_VMODULE": "device_executable_persistor=2",
            **variables,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    numbers = re.findall(r"^\[.*", process.stdout, re.MULTILINE)
    return numbers, *compilations(process.stderr), process.stderr


def compilations(log):
    """Numbers of functions that were compiled and loaded, on all devices."""
    found = [line[0] for line in LINES.findall(log)]
    return found.count("E"), found.count("L")


@pytest.mark.slow
def test_a_second_start_compiles_only_what_is_damaged(tmp_path):
    """The first start compiles each function on one of two devices.

    Fails if TensorFlow's flag, its log or its files change.
    """
    caches = {"XDG_CACHE_HOME": str(tmp_path)}
    losses, compiled, loaded, _ = start("", LARGE, **caches)
    files = list(tmp_path.glob("kerasmgpu/xla/*/*.pb"))
    assert loaded and not list(
        pathlib.Path("/dev/shm").glob(f"{xla_process.NAME}*.pb")
    )
    # Of a function with files of several shapes both devices compile one, at
    # the same time perhaps.
    functions = collections.Counter(
        file.name.partition(".")[0] for file in files
    )
    several = sum(number - 1 for number in functions.values())
    assert len(files) <= compiled <= len(files) + several
    smallest = min(
        (f for f in files if functions[f.name.partition(".")[0]] == 1),
        key=lambda file: file.stat().st_size,
    )
    smallest.write_bytes(smallest.read_bytes()[:-1])
    again, compiled_again, loaded_again, log = start("", LARGE, **caches)
    assert again == losses
    assert loaded_again + compiled_again == compiled + loaded
    assert 1 <= compiled_again <= 2  # Both devices may find it damaged.
    assert len(list(tmp_path.glob("kerasmgpu/xla/*/*.pb"))) == len(files)
    assert "kept for the next" not in log


@pytest.mark.nightly
def test_training_goes_on_without_a_folder(tmp_path):
    (tmp_path / "file").touch()
    losses, _, _, log = start(tmp_path / "file")
    assert losses
    assert log.count("what XLA compiles is not kept for the next start: ") == 1
    theirs = tmp_path / "theirs"
    flags = f"--tf_xla_persistent_cache_directory={theirs}"
    same, *_, log = start(tmp_path / "unused", TF_XLA_FLAGS=flags)
    assert same == losses
    assert list(theirs.iterdir()) and not (tmp_path / "unused").exists()


def test_flags_that_are_read_already_stay(monkeypatch):
    """These tests have listed devices before there was a strategy."""
    monkeypatch.setattr(xla_cache, "_why_not", None)
    monkeypatch.setattr(xla_cache, "_process", None)
    monkeypatch.delenv(xla_cache.VARIABLE, raising=False)
    before = dict(os.environ)
    xla_cache.prepare()
    assert "import kerasmgpu before that" in xla_cache._why_not
    assert dict(os.environ) == before


_LISTS = (
    "tf.config.list_physical_devices()",
    "tf.config.list_logical_devices()",
    "tf.ones(2) + 1",
)


@pytest.mark.nightly(but=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "imports, lists",
    [
        ("import keras, kerasmgpu, tensorflow as tf", _LISTS[0]),
        ("import tensorflow as tf, kerasmgpu", _LISTS[1]),
        ("import kerasmgpu, tensorflow as tf", _LISTS[2]),
    ],
)
def test_programs_are_kept_where_devices_are_listed_first(
    tmp_path, imports, lists
):
    """Before the strategy is made; a folder is there as soon as they are."""
    code = (
        f"{imports}\nimport pathlib, os\n"
        "from kerasmgpu.engine import xla_cache\n"
        f"before = xla_cache._process; {lists}\n"
        "xla_cache.expect({'f'}, None, on_gpus=False)\n"
        "print(before, xla_cache._process.folder)"
    )
    variables = {xla_cache.VARIABLE: str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    before, folder = process.stdout.split()
    assert before == "None" and not pathlib.Path(folder).exists()
    assert "not kept" not in process.stderr
    assert list(tmp_path.glob("*.json"))


def test_a_line_says_once_how_programs_would_be_kept(monkeypatch):
    """At a level that is shown, and not before a program is compiled."""
    monkeypatch.setattr(xla_cache, "_why_not", None)
    monkeypatch.setattr(xla_cache, "_process", None)
    monkeypatch.setattr(xla_cache, "_is_users", False)
    monkeypatch.delenv(xla_cache.VARIABLE, raising=False)
    said = []
    monkeypatch.setattr(
        xla_cache.logging, "log_first_n", lambda *given: said.append(given)
    )
    xla_cache.prepare()
    xla_cache.expect(set(), None, on_gpus=False)
    assert not said
    xla_cache.expect({"f"}, None, on_gpus=False)
    ((level, line, times, why),) = said
    assert (level, times) == (xla_cache.logging.WARNING, 1)
    assert "import kerasmgpu before that" in line % why


def test_other_systems_keep_nothing(monkeypatch):
    monkeypatch.setattr(xla_cache, "_why_not", None)
    monkeypatch.setattr(xla_cache, "_process", None)
    monkeypatch.delenv(xla_cache.VARIABLE, raising=False)
    monkeypatch.setattr(xla_cache.sys, "platform", "darwin")
    xla_cache.prepare()
    assert "Linux only" in xla_cache._why_not


@pytest.mark.parametrize(
    "flags, variable, loads",
    [("--tf_xla_persistent_cache_directory=x", "", {}), ("", "0", None)],
)
def test_what_the_user_has_set_stays(monkeypatch, flags, variable, loads):
    monkeypatch.setattr(xla_cache, "_why_not", None)
    monkeypatch.setattr(xla_cache, "_is_users", False)
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    monkeypatch.setenv(xla_cache.VARIABLE, variable)
    xla_cache.prepare()
    assert xla_cache._why_not == ""
    assert xla_cache.expect({"f"}, None, on_gpus=False) == loads


def test_programs_of_gpus_are_kept_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(xla_cache, "_why_not", None)
    assert not xla_cache.expect({"f"}, None, on_gpus=True)


def test_a_full_disk_ends_the_keeping_only(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(xla_process.exit_waits, "add", lambda wait: None)

    class Full:
        def keep(self, file, function):
            raise OSError(28, "No space left on device")

    process = xla_process.XlaProcess(tmp_path)
    process._files = Full()
    for name in ("one.pb", "two.pb"):
        (tmp_path / name).write_text("kerasmgpu_compiled_1f")
    process._keep_new()
    assert len(caplog.records) == 1
    assert "no longer kept" in caplog.text and "No space left" in caplog.text


@pytest.mark.parametrize(
    "argument, variable, expected",
    [
        (None, None, "/caches/kerasmgpu/xla"),
        (None, "/own", "/own"),
        (None, "0", None),
        (False, "/own", None),
        ("/mine", "0", "/mine"),
    ],
)
def test_the_argument_precedes_the_variable(
    monkeypatch, argument, variable, expected
):
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    monkeypatch.delenv(xla_cache.VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(xla_cache.VARIABLE, variable)
    found = xla_cache.folder_of(argument)
    assert found == (None if expected is None else pathlib.Path(expected))


def test_the_folder_of_a_killed_process_is_removed(tmp_path):
    killed, alive = tmp_path / "kerasmgpu_xla_1", tmp_path / "kerasmgpu_xla_2"
    for folder in (killed, alive):
        folder.mkdir()
        (folder / ".lock").touch()
    descriptor = xla_process.locked(alive)
    xla_process.remove_abandoned(tmp_path)
    assert alive.exists() and not killed.exists()
    os.close(descriptor)
