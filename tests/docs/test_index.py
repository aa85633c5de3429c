"""The table of the first page has all pages."""

import re

from tests.docs import pages


def test_the_table_has_all_pages():
    docs = pages.ROOT / "docs"
    rows = [
        line
        for line in (docs / "index.md").read_text("utf-8").splitlines()
        if line.startswith("| ")
    ]
    linked = set(re.findall(r"\]\(([\w/]+\.md)", "\n".join(rows)))
    there = {path.name for path in docs.glob("*.md")} - {"index.md"}
    assert linked - {"api/index.md", "decisions/README.md"} == there
