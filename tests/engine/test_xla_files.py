"""Files of compiled programs: whole ones of their owner, and not too many."""

import hashlib
import os

import pytest

from kerasmgpu.atomic_files import TEMPORARY
from kerasmgpu.engine.xla_files import (
    XlaFiles,
    descriptions,
    function_in,
)
from kerasmgpu.engine.xla_versions import digest
from kerasmgpu.partitioner.lowering.content_names import PREFIX

VERSIONS, OLD = {"TensorFlow": "2.21.0"}, {"TensorFlow": "2.18.0"}
KEY = digest(VERSIONS)
FUNCTION, OTHER = PREFIX + "0a1b", PREFIX + "2c3d"
NAME = "xla_compile_cache__1__2__XLA_CPU_JIT.pb"


@pytest.fixture
def folders(tmp_path):
    """The folder of kept files, and the one that TensorFlow looks at."""
    looked_at = tmp_path / "process"
    looked_at.mkdir()
    return tmp_path / "xla", looked_at


def written(folder, function, name=NAME, size=100):
    """A file as TensorFlow writes it, with the function's name inside."""
    path = folder / name
    path.write_bytes(f"HLO {function}_".encode() + bytes(size))
    return path


def kept(folder):
    return [one for one in (folder / KEY).iterdir() if one.is_file()]


def test_a_file_is_there_in_the_next_start_for_its_function(folders, tmp_path):
    xla, process = folders
    content = written(process, FUNCTION).read_bytes()
    XlaFiles(xla, VERSIONS).keep(process / NAME, function_in(process / NAME))
    assert (process / NAME).read_bytes() == content
    assert xla.stat().st_mode & 0o777 == 0o700
    (tmp_path / "next").mkdir()
    files = XlaFiles(xla, VERSIONS)
    assert files.link({OTHER}, tmp_path / "next") == {}
    linked = files.link({OTHER, FUNCTION}, tmp_path / "next")
    assert linked == {NAME: FUNCTION}
    assert (tmp_path / "next" / NAME).read_bytes() == content
    assert XlaFiles(xla, OLD).link({FUNCTION}, process) == {}


def test_a_folder_says_for_which_versions_it_has_programs(folders):
    xla, _ = folders
    for versions in (VERSIONS, OLD):
        XlaFiles(xla, versions)
    assert descriptions(xla) == {KEY: VERSIONS, digest(OLD): OLD}
    (xla / f"{KEY}.json").write_text("{")  # Copied in part.
    assert descriptions(xla) == {digest(OLD): OLD}
    XlaFiles(xla, VERSIONS)
    assert len(descriptions(xla)) == 2
    assert descriptions(xla / "none") == {}


def test_a_folder_that_is_only_read_gives_what_it_has(folders, monkeypatch):
    xla, process = folders
    files = XlaFiles(xla, VERSIONS)
    files.keep(written(process, FUNCTION), FUNCTION)
    files.keep(written(process, OTHER, "2.pb"), OTHER)
    damaged, _ = sorted(kept(xla), key=lambda file: OTHER[-4:] not in file.name)
    damaged.write_bytes(b"")

    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    monkeypatch.setattr(type(xla), "unlink", refuse)
    assert files.link({FUNCTION, OTHER}, process) == {NAME: FUNCTION}


def test_of_two_processes_one_keeps_a_file(folders):
    xla, process = folders
    for size in (100, 101):
        path = written(process, FUNCTION, size=size)
        XlaFiles(xla, VERSIONS).keep(path, FUNCTION)
        assert path.stat().st_size > size
        path.unlink()
    assert len(kept(xla)) == 1


def test_of_two_processes_that_write_at_once_one_keeps_a_file(
    folders, tmp_path, monkeypatch
):
    xla, process = folders
    first, second = XlaFiles(xla, VERSIONS), XlaFiles(xla, VERSIONS)
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other", FUNCTION, size=101)
    replace = os.replace

    def be_second(source, target):
        monkeypatch.setattr(os, "replace", replace)
        second.keep(other, FUNCTION)
        os.utime(other.resolve(), (1e9, 1e9))
        replace(source, target)

    monkeypatch.setattr(os, "replace", be_second)
    path = written(process, FUNCTION)
    first.keep(path, FUNCTION)
    (file,) = kept(xla)
    assert path.resolve() == other.resolve() == file.resolve()


def test_other_functions_names_are_of_one_process(folders):
    _, process = folders
    assert function_in(written(process, "__inference_f_1")) is None


@pytest.mark.parametrize("damage", ["cut short", "changed"])
def test_a_damaged_file_is_removed(folders, damage):
    xla, process = folders
    files = XlaFiles(xla, VERSIONS)
    files.keep(written(process, FUNCTION), FUNCTION)
    (file,) = kept(xla)
    content = file.read_bytes()
    file.write_bytes(content[:50] if damage == "cut short" else b"x" + content)
    (process / NAME).unlink()
    assert files.link({FUNCTION}, process) == {}
    assert not kept(xla) and not os.path.lexists(process / NAME)


@pytest.mark.parametrize("place", ["xla", f"xla/{KEY}"])
def test_a_folder_that_others_may_write_is_refused(folders, place):
    xla, _ = folders
    XlaFiles(xla, VERSIONS)
    (xla.parent / place).chmod(0o777)
    with pytest.raises(PermissionError, match=r"mode 777; run\s+chmod"):
        XlaFiles(xla, VERSIONS)


def test_a_file_that_others_may_write_is_refused(folders):
    xla, process = folders
    files = XlaFiles(xla, VERSIONS)
    files.keep(written(process, FUNCTION), FUNCTION)
    kept(xla)[0].chmod(0o666)
    with pytest.raises(PermissionError, match="mode 666"):
        files.link({FUNCTION}, process)


def test_a_full_disk_leaves_no_incomplete_file(folders, monkeypatch):
    xla, process = folders
    path = written(process, FUNCTION)
    files = XlaFiles(xla, VERSIONS)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.keep(path, FUNCTION)
    assert not kept(xla)
    assert not path.is_symlink()


def test_the_least_recently_used_files_make_room(folders):
    xla, process = folders
    XlaFiles(xla, OLD)
    for number in range(4):
        name = f"{number}.pb"
        function = FUNCTION + str(number)
        path = written(process, function, name)
        XlaFiles(xla, VERSIONS).keep(path, function)
    old = written(xla / digest(OLD), OTHER)
    left = xla / KEY / f"{TEMPORARY}of_a_killed_process"
    left.write_bytes(b"")
    by_number = sorted(kept(xla), key=lambda file: file.name[-4:])
    for age, file in enumerate([old, *by_number]):
        os.utime(file, (1e9 + age, 1e9 + age))
    os.utime(left, (1e8, 1e8))
    files = XlaFiles(xla, VERSIONS, most_bytes=300)
    files.link({FUNCTION + "0"}, process)  # Used now.
    files.trim()
    names = sorted(file.name.split(".")[2] for file in kept(xla))
    assert names == ["0", "3"]
    assert not old.exists()


TUNED = b"+avx2,+prefer-no-gather,+prefer-256-bit,+prefetchi,+avx512f,+gfni"


def test_tuning_is_no_feature_that_a_program_needs(folders):
    """Else TensorFlow logs "SIGILL" for it at each start; see `_CHECKED`."""
    folder, looked_at = folders
    files = XlaFiles(folder, VERSIONS)
    file = written(looked_at, FUNCTION)
    file.write_bytes(file.read_bytes() + TUNED)
    files.keep(file, FUNCTION)
    assert file.read_bytes().endswith(
        b"+avx2,-prefer-no-gather,-prefer-256-bit,+prefetchi,-avx512f,+gfni"
    )
    assert files.link([FUNCTION], looked_at)


def test_a_program_kept_with_tuning_is_compiled_again(folders):
    folder, looked_at = folders
    files = XlaFiles(folder, VERSIONS)
    content = f"HLO {FUNCTION}_".encode() + TUNED
    checksum = hashlib.sha256(content).hexdigest()[:32]
    function = FUNCTION.removeprefix(PREFIX)
    old = folder / KEY / f"{function}.{checksum}.{NAME}"
    old.write_bytes(content)
    old.chmod(0o600)
    assert not files.link([FUNCTION], looked_at) and not kept(folder)
