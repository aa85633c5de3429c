"""Dotted names in docs, docstrings and messages are there, as users find them."""

import ast
import functools
import json
import re
import subprocess
import sys

import pytest

import kerasmgpu
from tests.docs import pages

PACKAGE = pages.ROOT / "kerasmgpu"
ROOMS = {
    path.name.removesuffix(".py")
    for path in PACKAGE.iterdir()
    if path.suffix in ("", ".py") and not path.name.startswith("__")
}
_NAME = re.compile(
    r"(?<![\w./-])(python -m )?"
    rf"((?:kerasmgpu|{'|'.join(sorted(ROOMS))})(?:\.[A-Za-z_]\w*)+)"
)
_FILES = ("css", "csv", "html", "js", "json", "jsonl", "md", "png", "py", "txt")

REMOVED = {
    "kerasmgpu.benchmark",
    "kerasmgpu.data",
    "kerasmgpu.parallel.shared",
    "kerasmgpu.recipes.alexnet.lars",
    "kerasmgpu.recipes.autoencoder.autorec",
    "kerasmgpu.recipes.convnet.example",
    "kerasmgpu.recipes.convnet_example",
    "kerasmgpu.recipes.polynomial.model",
    "kerasmgpu.scaling_report",
}
"""Names of earlier versions, which tell what takes their place."""
TELL_OF_REMOVED = ("CHANGELOG.md", "docs/stability.md")

NOT_OURS = {"memory.max"}  # A file of Linux's control groups.

OF_THE_INSIDE = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture.md"),
    *("docs/partition.md", "docs/lowering.md", "docs/stability.md"),
)
"""Pages for who changes kerasmgpu; the others name what is public."""


@functools.cache
def named():
    """Set of each name with where it is, and whether a command's module."""
    found = set()
    texts = [(page, pages.text(page)) for page in pages.PAGES]
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        texts += [
            (path.name, node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    for where, text in texts:
        for is_command, name in _NAME.findall(text):
            if name.rpartition(".")[2] in _FILES or name in NOT_OURS:
                continue
            if name not in REMOVED or where not in TELL_OF_REMOVED:
                found.add((name, where, bool(is_command)))
    return found


def is_there(name):
    """Whether a name is there after `import kerasmgpu` and nothing else."""
    found = kerasmgpu
    for part in name.removeprefix("kerasmgpu.").split("."):
        if hasattr(found, "__path__"):
            module = sys.modules.get(f"{found.__name__}.{part}")
            if module is not None and vars(found).get(part) is module:
                delattr(found, part)  # Another name has imported it.
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.slow
def test_names_are_there_after_import_kerasmgpu():
    # In a process that has imported nothing else of ours.
    names = sorted({name for name, _, _ in named()})
    assert len(names) > 100
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.test_names", *names],
        capture_output=True,
        text=True,
        cwd=pages.ROOT,
    )
    assert done.returncode == 0, done.stderr
    places = {name: where for name, where, _ in named()}
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: places[name] for name in found} == {}


@pytest.mark.parametrize("page", pages.PAGES)
def test_pages_for_users_name_what_is_public(page):
    if page in OF_THE_INSIDE or page.startswith("docs/decisions/"):
        return
    listed = pages.text("docs/api/index.md")
    public = {*kerasmgpu.__all__, "__all__", "__version__"}
    public |= {
        name.partition(".")[2]
        for name in re.findall(r"`(kerasmgpu\.[\w.]+)`", listed)
    }
    # Without what says where mkdocs finds a public name, and its anchors.
    text = re.sub(r"(?m)^(::: |\[\]\(\)\{ ).*", "", pages.text(page))
    for is_command, name in _NAME.findall(text):
        if name.startswith("kerasmgpu.") and not is_command:
            inner = name.removeprefix("kerasmgpu.")
            assert any(f"{inner}.".startswith(f"{one}.") for one in public), (
                f"{page} names {name}, which is not public"
            )


if __name__ == "__main__":
    print(json.dumps([name for name in sys.argv[1:] if not is_there(name)]))
