"""Cells and rows of the tables, and how they get into a page."""

import pytest

from benchmarks.exactness import tables
from benchmarks.exactness.registry import Case, cases
from tests.docs import pages

TABLE = tables.Table("case", "page.md", replica_counts=(2,))
CASES = {name: Case(name, "g", None) for name in ("one", "two", "three")}
CLOSE = {"distance": 1e-9, "what": "weights", "flaws": [], "in_parity": True}
APART = {**CLOSE, "distance": 0.1, "what": "logs", "in_parity": False}
PAGE = """Before.

| case | stock, 2 | kerasmgpu, 2 |
| --- | --- | --- |
| *in parity, of all* | 0 of 2 | 1 of 1 |
| g: two | **ValueError** | 2e-09 |
| g: renamed | 3e-09 | 3e-09 |

Behind.
"""


def test_what_is_not_in_parity_is_bold():
    assert tables.cell(CLOSE) == "1e-09"
    assert tables.cell(APART) == "**1e-01, logs**"
    nudged = {**APART, "what": "weights", "nudged": 1e-9}
    assert tables.cell(nudged) == "**1e-01 (1e-09)**"
    assert tables.cell({"error": "ValueError"}) == "**ValueError**"
    differ = {**CLOSE, "flaws": ["tokens differ"], "in_parity": False}
    assert tables.cell(differ) == "**1e-09, tokens differ**"
    tokens = {"text": "differs (xla)", "in_parity": False}
    assert tables.cell(tokens) == "**differs (xla)**"
    assert tables.cell({"missing": "generates nothing"}) == "–"


def test_rows_that_were_measured_replace_those_of_the_page():
    results = {("one", "stock, 2"): APART, ("one", "kerasmgpu, 2"): CLOSE}
    variants = TABLE.variants()
    page = tables.rewritten(PAGE, TABLE, CASES, variants, results)
    begin, _, rest = page.partition("| *in parity, of all* |")
    assert PAGE.startswith(begin)
    assert rest == (
        " 0 of 2 | 2 of 2 |\n"
        "| g: one | **1e-01, logs** | 1e-09 |\n"
        "| g: two | **ValueError** | 2e-09 |\n"
        "\nBehind.\n"
    )


def test_a_page_without_the_columns_is_refused():
    with pytest.raises(ValueError, match="page.md has no table"):
        tables.rewritten(PAGE, TABLE, CASES, ["stock, 3"], {})


@pytest.mark.parametrize(
    "name", [name for name, table in tables.TABLES.items() if table.page]
)
def test_pages_have_the_tables_and_known_programs(name):
    table = tables.TABLES[name]
    page = (pages.ROOT / table.page).read_text("utf-8")
    again = tables.rewritten(page, table, cases(name), table.variants(), {})
    assert again == page
