"""Tables over widths: each figure and each word is there, whole."""

import io
import pathlib
import random
import re

import pytest
from rich.console import Console
from rich.text import Text

import kerasmgpu
from kerasmgpu.commands.fitted_table import FittedTable
from kerasmgpu.memory import memory_report
from kerasmgpu.plan import tables

WIDTHS = (24, 32, 40, 60, 80, 100, 140, 1000)


def printed(table, width):
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return file.getvalue()


def words(text):
    return set(re.sub(r"[─━│┃┏┓┗┛┡┩├┤└┘┬┴┳┻╇┼╋:]", " ", text).split())


def memory(rows):
    """A table of `kerasmgpu memory`: 13 columns of sizes."""
    table = FittedTable(
        "gpt2, 124,439,808 parameters, global batch 64: memory of a replica",
        right=["replicas", "shard", "micro-batches"],
    )
    names = [*memory_report.PARTS, "total", "built", "loaded", "host"]
    for name in names:
        table.add_column(name, is_right=True)
    table.add_column("fits")
    for row in range(rows):
        cells = [f"{100 + row * 17 + n} MiB" for n in range(len(names))]
        table.add_row(str(2**row), "weights", "1", *cells, "yes")
    return table


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_figures_are_whole(width, rows):
    table = memory(rows)
    lines = printed(table, width).splitlines()
    assert all(len(line) <= width for line in lines)
    text = "\n".join(lines)
    for column in table.columns:
        for cell in column.cells:
            assert re.search(rf"(?<![\w,]){cell.text.plain}(?!\w)", text)
        assert set(column.name.split()) <= words(text)
    assert "…" not in text


def test_it_is_one_table_where_there_is_room():
    lines = printed(memory(4), 200).splitlines()
    assert len(lines) == 1 + 4 + 4


def test_headings_are_broken_before_columns_are_divided():
    table = FittedTable("", ["name"], ["rows per replica", "global batch size"])
    table.add_row("one", "64", "128")
    lines = printed(table, 32).splitlines()
    assert "┃ name ┃ replica ┃ size ┃" in [
        re.sub(" +", " ", one) for one in lines
    ]
    assert len(lines) < 9


def test_rows_and_columns_are_swapped_where_that_is_shorter():
    text = printed(memory(3), 60)
    assert re.search(r"replicas +┃ +1 +┃ +2 +┃ +4", text)
    # Of many variables, each has its line.
    table = FittedTable("", ["variable"], ["bytes", "pieces", "x" * 25])
    for n in range(50):
        table.add_row(f"layer_{n}/kernel", "1,024", "1", "7")
    text = printed(table, 50)
    assert re.search(r"layer_7/kernel +│ +1,024 +│ +1", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_words_are_whole(width):
    table = FittedTable("doctor", ["status", "subject", "finding"])
    text = (
        "TensorFlow sees 2 of 4 GPUs; CUDA_VISIBLE_DEVICES hides others. " * 5
    )
    table.add_row("[red]problem[/]", "devices", Text(text))
    found = printed(table, width)
    assert {*text.split(), "problem", "devices"} <= words(found)


@pytest.mark.parametrize("seed", range(20))
def test_random_tables_lose_nothing(seed):
    draw = random.Random(seed)
    count = draw.randint(1, 9)
    left = [f"text {n}" for n in range(draw.randint(0, 3))]
    table = FittedTable(
        "title", left, [f"figure {n}" for n in range(count)], "caption"
    )
    cells = []
    for _ in range(draw.randint(1, 12)):
        row = [" ".join(["wörd"] * draw.randint(1, 9)) for _ in left]
        row += [
            f"{draw.randrange(10 ** draw.randint(1, 9)):,}"
            for _ in range(count)
        ]
        table.add_row(*row)
        cells += row
    for width in WIDTHS:
        found = words(printed(table, width))
        assert {w for cell in cells for w in cell.split()} <= found


def test_what_programs_read_is_not_broken(capsys):
    from kerasmgpu.commands import reports

    table = memory(2)
    table.add_column("note")
    for column in table.columns[-1:]:
        column.cells = table.columns[0].cells
    reports.console().print(table)
    assert len(capsys.readouterr().out.splitlines()) == 1 + 4 + 2


def test_a_plan_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    row = {
        "replicas": 8,
        "global_batch_size": 2048,
        **{
            f"{name}_seconds": 123.4567
            for name in (
                *("compute", "host", "input", "all_reduce", "exposed", "step"),
            )
        },
        "speed_up": 7.25,
        "efficiency": 0.9,
        "limit": "computation",
    }
    tables.print_plan(
        {
            "predictions": [row] * 5,
            "scaling": "weak",
            "title": "8 GPUs",
            "notes": [],
            "memory": [
                {"memory_bytes": 151_000_000, "fits_with": "--shard=weights"}
            ]
            * 5,
        }
    )
    text = capsys.readouterr().out
    for figure in ("123456.7", "144 MiB", "2,048", "7.25", "computation"):
        assert figure in text


def test_all_tables_are_fitted():
    """Tables of `rich` are made here, and for the live line of `Progress`."""
    package = pathlib.Path(kerasmgpu.__file__).parent
    makers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"rich(\.table)? import .*\bTable\b", path.read_text())
    }
    assert makers == {"commands/fitted_table.py", "callbacks/progress.py"}
