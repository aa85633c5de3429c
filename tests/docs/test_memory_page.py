"""The worked example on the page about memory is what its command prints."""

import json
import re
import shlex

import pytest

from kerasmgpu.memory.memory_report import size
from tests import console
from tests.docs import pages

PAGE = "docs/memory.md"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What the page's command prints of the page's model, as JSON."""
    folder = tmp_path_factory.mktemp("example")
    (module,) = (
        code
        for _, _, code in pages.fences(PAGE, "python")
        if "def build" in code
    )
    (folder / "my_module.py").write_text(module, "utf-8")
    (command,) = (
        re.sub(r"\\\n\s*", "", code) for _, _, code in pages.fences(PAGE, "sh")
    )
    _, *words = shlex.split(command)
    done = console.run(*words, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_table_is_the_commands(report):
    text = pages.text(PAGE)
    heading = re.search(r"\| replicas \| shard \|.*", text)
    names = [n.replace("-", "_") for n in cells(heading.group())]
    shown = text[heading.end() :].strip().splitlines()[1:]
    shown = shown[: len(report["rows"])]
    assert [cells(line) for line in shown] == [
        [as_shown(name, row[name]) for name in names] for row in report["rows"]
    ]


def test_the_verdict_is_the_commands(report):
    assert f"```text\n{report['verdict']}\n```" in pages.text(PAGE)


def cells(line):
    return [cell.strip() for cell in line.strip("| ").split("|")]


def as_shown(name, value):
    if name in ("replicas", "shard", "micro_batches"):
        return str(value)
    if name == "fits":
        return "yes" if value else "no"
    return size(value)
