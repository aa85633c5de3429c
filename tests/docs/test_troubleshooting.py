"""Each line that the troubleshooting page quotes is one of the source's."""

import ast
import functools
import re

from tests.docs import pages

GAP = "…"


def test_quoted_lines_are_in_the_source():
    templates = source_lines()
    quoted = [
        " ".join(code.split())
        for _, _, code in pages.fences("docs/troubleshooting.md", "text")
    ]
    assert len(quoted) > 40
    strangers = [
        line
        for line in quoted
        if not any(line in template for template in templates)
    ]
    assert strangers == []


def test_a_word_that_is_not_in_the_source_is_noticed():
    templates = source_lines()
    assert any("Every replica needs a device of" in line for line in templates)
    assert not any(
        "Each replica needs a device of" in line for line in templates
    )


@functools.cache
def source_lines():
    """All strings of the package, with a gap for what differs."""
    lines = set()
    for path in (pages.ROOT / "kerasmgpu").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.BinOp, ast.Constant, ast.JoinedStr)):
                line = re.sub(r"%(\.\d+)?[drsgf]", GAP, words(node))
                line = " ".join(line.split())
                lines.add(re.sub(f"{GAP}(\\.?{GAP})+", GAP, line))
    return lines


def words(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(words, node.values))
    if isinstance(node, ast.BinOp):
        return words(node.left) + words(node.right)
    return GAP
