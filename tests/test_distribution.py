"""What `pip install -e .` installs, and what the source distribution holds."""

import email
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

import kerasmgpu

pytest.importorskip("setuptools", minversion="77")

ROOT = pathlib.Path(__file__).parents[1]

BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]  # setuptools changes it.
build_meta.build_editable(folder)
build_meta.build_sdist(folder)
"""


@pytest.fixture(scope="module")
def tracked():
    """Paths of the files that git tracks."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    names = listing.stdout.decode().split("\0")
    return {name for name in names if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tracked, tmp_path_factory):
    """Folder with an editable wheel and a source distribution."""
    sources, folder = (tmp_path_factory.mktemp(x) for x in ("sources", "built"))
    for name in tracked:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, sources / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)],
        cwd=sources,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def sdist(built):
    """Dictionary from the paths of the source distribution to their bytes."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as tar:
        return {
            member.name.partition("/")[2]: tar.extractfile(member).read()
            for member in tar
            if member.isfile()
        }


def test_editable_a_clone_in_the_working_directory_is_no_package(
    built, tmp_path
):
    # A folder on sys.path is searched in its turn; setuptools' other way, a
    # finder of modules, comes after the namespace package that a clone's root is.
    (tmp_path / "kerasmgpu").mkdir()
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "site")
    code = (
        f"import site; site.addsitedir({str(tmp_path / 'site')!r});"
        "import kerasmgpu; print(kerasmgpu.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-E", "-S", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{kerasmgpu.__version__}\n", done.stderr


def test_the_source_distribution_is_the_whole_repository(sdist, tracked):
    assert tracked - set(sdist) == set()
    assert "tests/conftest.py" in sdist


def test_the_index_shows_no_link_that_leads_nowhere(sdist):
    metadata = email.message_from_bytes(sdist["PKG-INFO"])
    text = metadata.get_payload(decode=True).decode()
    assert text.startswith("# kerasmgpu\n")
    links = re.findall(r"\]\((?!https?://)([^)]*)\)", text)
    assert links == []
    assert "from one GPU to many" in text and "(docs/five_minutes.md)" in text
    assert "Documentation (docs/index.md)" in text
    assert text.count("those of a checkout") == 1


def test_each_supported_python_has_its_classifier(sdist):
    metadata = email.message_from_bytes(sdist["PKG-INFO"])
    prefix = "Programming Language :: Python :: 3."
    minors = [
        int(text.removeprefix(prefix))
        for text in metadata.get_all("Classifier")
        if text.startswith(prefix)
    ]
    readme = (ROOT / "README.md").read_text("utf-8")
    first, last = re.search(r"Python 3\.(\d+) to 3\.(\d+)", readme).groups()
    assert minors == list(range(int(first), int(last) + 1))
    assert metadata["Requires-Python"] == f">=3.{first}"
