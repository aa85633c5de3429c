"""The pages' Python runs, and what can't be run here says so."""

import doctest
import importlib
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.docs import pages, preparations, snippets

WITH_PYTHON = [page for page in pages.PAGES if any(snippets.to_run(page))]


SLOW = (
    "benchmarks/README.md",
    "docs/answers.md",
    "docs/audit.md",
    "docs/checkpoints.md",
    "docs/clusters.md",
    "docs/finders.md",
    "docs/five_minutes.md",
    "docs/input.md",
    "docs/leaving.md",
    "docs/memory.md",
    "docs/monitoring.md",
    "docs/monitoring_devices.md",
    "docs/notebooks.md",
    "docs/placement.md",
    "docs/report.md",
    "docs/throughput.md",
)
TIERS = dict.fromkeys(SLOW, pytest.mark.slow)
TIERS["docs/speed.md"] = pytest.mark.nightly


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=TIERS.get(page, ())) for page in WITH_PYTHON],
)
def test_python_runs(page, tmp_path, monkeypatch):
    """A page's code, top to bottom, as pasted; tracebacks name its lines."""
    tf.config.list_logical_devices()  # So that no page makes fewer.
    monkeypatch.chdir(tmp_path)
    arguments = preparations.ARGUMENTS.get(page, [])
    monkeypatch.setattr(sys, "argv", [page, *arguments])
    names = {"__name__": "__page__"}
    for line, language, code in snippets.to_run(page):
        for written, changed in preparations.CHANGES.get(page, {}).items():
            code = code.replace(written, changed)
        if language == "pycon":
            compare_session(page, line, code, names)
        else:
            placed = "\n" * (line - 1) + code
            exec(compile(placed, pages.ROOT / page, "exec"), names)
    names |= {"pathlib": pathlib, "np": np}
    exec(preparations.AFTERWARDS.get(page, ""), names)


def compare_session(page, line, code, names):
    """Runs what looks like Python's prompt, and compares what it shows."""
    session = doctest.DocTestParser().get_doctest(
        code, names, page, page, line - 1
    )
    told = []
    results = doctest.DocTestRunner().run(
        session, out=told.append, clear_globs=False
    )
    assert results.attempted and not results.failed, "".join(told)
    names.update(session.globs)


def test_there_are_pages_with_python():
    assert {
        "README.md",
        "docs/five_minutes.md",
        "docs/larger_batches.md",
    } < set(WITH_PYTHON)


def test_what_is_changed_is_written():
    for page, changes in preparations.CHANGES.items():
        assert all(written in pages.text(page) for written in changes), page


def test_what_is_not_run_is_listed_and_marked():
    marked = {
        (page, code)
        for page in pages.PAGES
        for _, before, code in pages.fences(page, "python", "sh", "")
        if before.startswith(snippets.MARK)
    }
    for page, begin in snippets.NOT_RUN:
        (found,) = [
            m for m in marked if m[0] == page and m[1].startswith(begin)
        ]
        marked.remove(found)
    assert marked == set()


def test_quoted_code_is_in_its_file():
    found = set()
    for page in pages.PAGES:
        for _, _, code in pages.fences(page, "python"):
            source = snippets.quoted_from(page, code)
            if source is not None:
                assert code.strip() in pages.text(source)
                found.add(source)
    assert found == set(snippets.QUOTED.values())


def test_sessions_in_docstrings_show_what_comes_out():
    attempted = 0
    for path in sorted((pages.ROOT / "kerasmgpu").rglob("*.py")):
        if "\n    >>> " in path.read_text("utf-8"):
            parts = path.relative_to(pages.ROOT).with_suffix("").parts
            module = importlib.import_module(".".join(parts))
            results = doctest.testmod(module)
            assert not results.failed, module
            attempted += results.attempted
    assert attempted > 10
