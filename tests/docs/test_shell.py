"""The pages' commands exist, know their flags, and the short ones run."""

import functools
import re
import shlex

import pytest

from tests import console
from tests.docs import pages, snippets

SHORT = [
    ("docs/plan.md", "kerasmgpu plan --step_seconds=0.3 "),
    ("docs/slower.md", "kerasmgpu plan --step_seconds=0.3 "),
]
"""Page and begin of commands that take seconds; the README's two are CI's."""

ABSENT = {"a$", "b$", "docker", "kubectl", "mpirun", "sbatch", "srun"}
"""First words of commands that need what tests don't have."""

_COMMAND = re.compile(
    r"(?:python -m kerasmgpu\.|\bkerasmgpu )([\w.]+)([^`\n]*)"
)


@pytest.mark.parametrize("page", pages.PAGES)
def test_commands_have_their_flags(page):
    text = re.sub(r"\\\n\s*", "", pages.text(page))
    for command, rest in _COMMAND.findall(text):
        given = re.findall(r"(?<!\S)--\w+|(?<!\S)--(?=\s)", rest)
        own = given[: given.index("--")] if "--" in given else given
        if command == "launch" and " train.py " in rest:  # The program's.
            own = [flag for flag in own if rest.index(flag) < rest.index(" tr")]
        if not given:
            continue
        unknown = {flag.removeprefix("--") for flag in own} - flags_of(command)
        assert not unknown, f"{page}: {command} has no {unknown}"


@pytest.mark.parametrize("page, begin", SHORT)
def test_short_commands_run(page, begin, tmp_path):
    (command,) = [c for c in lines(page) if c.startswith(begin)]
    done = console.run(*shlex.split(command)[1:], folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", pages.PAGES)
def test_what_needs_other_machines_is_marked(page):
    for line, before, code in pages.fences(page, "sh", ""):
        if code.split()[0] in ABSENT:
            assert before.startswith(snippets.MARK), f"{page}:{line}"


def test_files_of_tests_that_pages_name_are_there():
    for page in pages.PAGES:
        for name in re.findall(r"\btests/[\w/]+(?:\.py)?", pages.text(page)):
            path = pages.ROOT / name
            assert path.exists() or path.with_suffix(".py").exists(), page


def lines(page):
    for _, _, code in pages.fences(page, "sh", ""):
        yield from re.sub(r"\\\n\s*", "", code).splitlines()


@functools.cache
def flags_of(command):
    """Names of the flags of `kerasmgpu COMMAND`."""
    command = command.removeprefix("recipes.")
    done = console.run(command, "--helpfull")
    found = set(
        re.findall(r"^\s+--(?:\[no\])?(\w+)", done.stdout, re.MULTILINE)
    )
    assert len(found) > 3, done.stderr
    return found | {"help"}
