"""The tables: what is run for each, and its rows in Markdown."""

import dataclasses
import importlib
import re


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of programs.

    Attributes:
        head: Title of the column of programs.
        page: Markdown page that has the table; `None` for none.
        contenders: Strategies or settings that are compared with one device.
        replica_counts: Numbers of replicas of each; empty where a setting says.
        module: Module of this package with the class `Measure`.
        options: Flags that are arguments of it.
        counts: Columns of the first contender's `comparison.counts`.
        packages: Results of other versions of these are not taken.
    """

    head: str
    page: str | None = None
    contenders: tuple = ("stock", "kerasmgpu")
    replica_counts: tuple = (2, 3)
    module: str = "comparison"
    options: tuple = ()
    counts: tuple = ()
    packages: tuple = ("keras", "tensorflow")

    def variants(self, contenders=(), replica_counts=()):
        """Names of what is run, which are titles of columns."""
        contenders = contenders or self.contenders
        if not self.replica_counts:
            return list(contenders)
        counts = replica_counts or self.replica_counts
        return [f"{who}, {n}" for who in contenders for n in counts]

    def measure(self, case, **options):
        """Function of a variant that runs a `registry.Case`."""
        module = importlib.import_module(f"{__package__}.{self.module}")
        return module.Measure(case, **options)


TABLES = {
    "parity": Table("case", "docs/parity.md", replica_counts=(2, 4)),
    "models": Table(
        "model",
        "docs/models.md",
        contenders=("kerasmgpu",),
        counts=("operations", "with rule", "gathered"),
    ),
    "keras_io": Table("program", "docs/examples.md"),
    "reports": Table("report", "docs/examples.md"),
    "keras_hub": Table(
        "family",
        "docs/keras_hub.md",
        ("plain", "weights", "generate", "mesh", "bfloat16", "xla"),
        (),
        "keras_hub.settings",
        packages=("keras", "tensorflow", "keras-hub", "keras-rs"),
    ),
    "keras_own": Table(
        "file",
        contenders=("kerasmgpu",),
        replica_counts=(2,),
        module="keras_own.comparison",
        options=("select",),
    ),
    "distribution": Table(
        "file",
        contenders=("kerasmgpu",),
        replica_counts=(),
        module="keras_own.distribution",
        options=("select", "checkout"),
    ),
}


def cell(result):
    """What a table shows of a result; bold where it is not in parity."""
    if result is None or "missing" in result:
        return "–"
    if "error" in result:
        return f"**{result['error']}**"
    text = result.get("text") or f"{result['distance']:.0e}"
    if result.get("what", "weights") != "weights" and not result["in_parity"]:
        text += f", {result['what']}"
    if "nudged" in result:
        text += f" ({result['nudged']:.0e})"
    text = ", ".join([text, *result.get("flaws", ())])
    return text if result["in_parity"] else f"**{text}**"


def rows(table, cases, variants, results):
    """Rows of the programs that have results, by title.

    Args:
        table: `Table`.
        cases: `{name: registry.Case}`.
        variants: Columns.
        results: `{(name, variant): result}`.

    Returns:
        Dictionary from titles to lists of cells.
    """
    found = {}
    for name, case in cases.items():
        own = [results.get((name, variant)) for variant in variants]
        if any(own):
            first = next(filter(None, own))
            counts = [str(first.get(column, "–")) for column in table.counts]
            found[case.title] = [*counts, *map(cell, own)]
    return found


def markdown(table, variants, found):
    """A table in Markdown; its second row sums up.

    Args:
        table: `Table`.
        variants: Columns.
        found: See `rows`.
    """
    sums = ["" for _ in table.counts] + [
        _sum([cells[number] for cells in found.values()])
        for number in range(len(table.counts), len(table.counts + (*variants,)))
    ]
    heads = [table.head, *table.counts, *variants]
    lines = [heads, ["---"] * len(heads), ["*in parity, of all*", *sums]]
    lines += [[title, *cells] for title, cells in found.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rewritten(page, table, cases, variants, results):
    """A page with a table's rows as the results have them; others stay.

    Args:
        page: The page's text.
        table, cases, variants, results: See `rows`.

    Raises:
        ValueError: If the page has no table with these columns.
    """
    begin = f"| {' | '.join([table.head, *table.counts, *variants])} |\n"
    before, found, after = page.partition(begin)
    if not found:
        raise ValueError(f"{table.page} has no table with the head {begin}")
    _, old, after = re.split(r"\A((?:\|.*\n)*)", after)
    known = {}
    for line in old.splitlines()[2:]:
        title, *cells = line[2:-2].split(" | ")
        known[title] = cells
    known.update(rows(table, cases, variants, results))
    titles = [case.title for case in cases.values() if case.title in known]
    return (
        before
        + markdown(table, variants, {title: known[title] for title in titles})
        + after
    )


def _sum(cells):
    """How many cells are in parity, of those that were run."""
    were_run = [found for found in cells if found != "–"]
    good = sum(not found.startswith("**") for found in were_run)
    return f"{good} of {len(were_run)}"
