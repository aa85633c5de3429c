"""The site builds without a warning, and has a place for every public name."""

import html
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys

import pytest

import kerasmgpu
from tests.docs import pages

pytest.importorskip("mkdocs", reason="the site needs the extra `docs`")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = ("mkdocs", "build", "--strict", "--site-dir", str(folder))
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=pages.ROOT,
        env=dict(os.environ, NO_MKDOCS_2_WARNING="1"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_every_public_name_has_its_place(site):
    api = "".join(
        path.read_text("utf-8") for path in site.glob("api/**/*.html")
    )
    places = set(re.findall(r'id="(kerasmgpu\.[\w.]+)"', api))
    assert set(public_names()) - places == set()


def test_docstrings_are_read_and_not_shown_as_they_are(site):
    for path in site.glob("api/**/*.html"):
        text = path.read_text("utf-8")
        assert not re.search(r"\b(Args|Raises|Returns|Attributes):\s*\n", text)
        assert "<blockquote>" not in text, f"{path}: a session as quotations"
        assert "<p>|" not in text, f"{path}: a table that is none"
        assert not re.search(r"<tr>\s*<td></td>", text), (
            f"{path}: a cell in rows"
        )


def test_what_a_function_returns_is_one_item(site):
    for path in site.glob("api/**/*.html"):
        for returns in re.findall(
            r"Returns:</span>(.*?)</ul>", path.read_text("utf-8"), re.DOTALL
        ):
            assert returns.count("<li") == 1, f"{path}: {returns}"


def test_signatures_fit_in_the_page(site):
    lines = []
    for path in site.glob("api/**/*.html"):
        text = path.read_text("utf-8")
        for code in re.findall(
            r'<div class="[^"]*doc-signature[^"]*">(.*?)</pre>', text, re.DOTALL
        ):
            code = html.unescape(re.sub(r"<[^>]*>", "", code))
            lines += code.splitlines()
    assert len(lines) > 100
    assert [line for line in lines if len(line) > 70] == []


def test_the_first_page_says_how_to_install(site):
    text = re.sub(r"<[^>]*>", "", (site / "index.html").read_text("utf-8"))
    assert "pip install -e ." in text


def test_flags_and_figures_stay_in_one_line(site):
    alexnet = (site / "recipes/alexnet/index.html").read_text("utf-8")
    assert '<code class="word">--learning_rate_decay</code>' in alexnet
    parity = (site / "parity/index.html").read_text("utf-8")
    cells = re.findall(r"<td\b.*?</td>", parity)
    figures = re.findall(r"(.{19})\d[\d.]*e-\d\d", " ".join(cells))
    assert len(figures) > 100
    assert set(figures) == {'<span class="word">'}
    style = (site / "_site/style.css").read_text("utf-8")
    assert re.search(r"\.word \{\s*white-space: nowrap", style)


def test_plots_are_dark_where_the_page_is(site):
    style = (site / "_site/style.css").read_text("utf-8")
    images = (
        r'\[data-md-color-scheme="slate"\] \.md-typeset img\[src\$="\.png"\]'
    )
    assert re.search(images + r" \{\s*filter: invert", style)
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        for source in re.findall(r'<img\b[^>]*src="([^"]*)"', text):
            assert source.endswith((".png", ".svg")), f"{path}: {source}"


def test_every_page_can_be_found(site):
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    found = {entry["location"].split("#")[0] for entry in index["docs"]}
    for path in (pages.ROOT / "docs").glob("*.md"):
        assert ("" if path.stem == "index" else f"{path.stem}/") in found


def test_no_page_asks_another_host_for_anything(site):
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", text):
            for address in re.findall(r'(?:src|href)="([^"]*)"', tag):
                assert "//" not in html.unescape(address), f"{path}: {tag}"


def test_notebooks_open_elsewhere_once_the_repository_is_known():
    path = pages.ROOT / "docs/_site/addresses.py"
    specification = importlib.util.spec_from_file_location("addresses", path)
    addresses = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(addresses)
    text = "[two](two_gpus.ipynb) and [a page](memory.md)"
    assert addresses.with_buttons(text, "") == text
    found = addresses.with_buttons(text, "https://github.com/a/b")
    assert found.startswith(
        "[two](two_gpus.ipynb) ([Colab](https://colab.research.google.com/"
        "github/a/b/blob/main/docs/two_gpus.ipynb), [Kaggle]("
    )
    assert found.endswith("[a page](memory.md)")


def test_plots_are_on_the_site(site):
    for plot in (
        "recipes/alexnet/accuracy_by_batch",
        "benchmarks/results/deep/benchmark",
    ):
        assert (site / f"{plot}.png").stat().st_size > 10_000


def public_names():
    """Dotted names of all that is public."""
    for name in kerasmgpu.__all__:
        thing = getattr(kerasmgpu, name)
        if not inspect.ismodule(thing) or callable(thing):
            yield f"kerasmgpu.{name}"
            continue
        listed = getattr(thing, "__all__", None) or [
            inner
            for inner, value in vars(thing).items()
            if not inner.startswith("_")
            and getattr(value, "__module__", None) == thing.__name__
        ]
        yield from (f"kerasmgpu.{name}.{inner}" for inner in listed)
