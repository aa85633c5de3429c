"""What a release needs of this repository agrees: versions, links, the recipe."""

import importlib.util
import re
import shutil

import pytest

import kerasmgpu
from tests.docs import pages

ROOT = pages.ROOT
LINKS = """
repository-code: "https://host/owner/kerasmgpu"
url: "https://site/kerasmgpu/"
"""


def loaded(path):
    """A Python file that is in no package, as a module."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def check_tag():
    return loaded(ROOT / "packaging/check_tag.py")


@pytest.fixture
def setup(monkeypatch, tmp_path):
    """`setup.py` of a folder whose CITATION.cff has both addresses."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    for name in ("setup.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "CITATION.cff").write_text(LINKS)
    return loaded(tmp_path / "setup.py")


def test_the_versions_agree(check_tag):
    assert set(check_tag.found().values()) == {kerasmgpu.__version__}


def test_a_tag_of_another_version_names_the_files(check_tag, capsys):
    assert check_tag.main(f"v{kerasmgpu.__version__}") == 0
    assert check_tag.main("v99.0.0") == 1
    printed = capsys.readouterr().out
    assert all(name in printed for name in check_tag.WHERE)


def test_links_come_from_the_citation(setup):
    assert setup.addresses() == {
        "Documentation": "https://site/kerasmgpu/",
        "Source": "https://host/owner/kerasmgpu",
        "Issues": "https://host/owner/kerasmgpu/issues",
        "Changes": "https://host/owner/kerasmgpu/blob/main/CHANGELOG.md",
    }


def test_conda_requires_what_pip_does(setup):
    text = (ROOT / "packaging/conda/recipe.yaml").read_text("utf-8")
    run = text.partition("\n  run:\n")[2].partition("\n\n")[0]
    packages = set(re.findall(r"^    - (\S+ >=\S+)$", run, re.M))
    required = re.findall(
        r'^        "([\w-]+)(>=[\d.]+)",$',
        (ROOT / "setup.py").read_text("utf-8"),
        re.M,
    )
    python = f"python {kerasmgpu_python()}"
    assert packages == {python, *(f"{n} {bound}" for n, bound in required)}
    assert f"\n  version: {kerasmgpu.__version__}\n" in text


def kerasmgpu_python():
    """The bound on Python in pyproject.toml, `">=3.10"`."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    return re.search(r'^requires-python = "(.+)"$', text, re.M)[1]


def test_nothing_is_published_without_the_switch():
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    publish = text.partition("\n  publish:\n")[2]
    assert "github.ref_type == 'tag' && vars.PUBLISH == 'true'" in publish
    assert "needs: try-wheel" in publish and "password" not in text
