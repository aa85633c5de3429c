"""The documentation as tests read it: pages, and the fenced code in them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "recipes/**/*.md",
        "benchmarks/**/*.md",
    )
    for path in ROOT.glob(pattern)
)

_FENCE = re.compile(
    r"^```[ ]*(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def text(page):
    return (ROOT / page).read_text("utf-8")


def fences(page, *languages):
    """Line number, the paragraph before, and code of each fence of a page."""
    whole = text(page)
    for match in _FENCE.finditer(whole):
        if match["language"] in languages:
            before = whole[: match.start()].rstrip().rsplit("\n\n", 1)[-1]
            line = whole.count("\n", 0, match.start("code")) + 1
            yield line, before, match["code"]
