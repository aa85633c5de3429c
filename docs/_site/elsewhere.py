"""Pages of the site that are not in `docs/`, with links that work on both.

In the repository a page of `docs/` says `../recipes/README.md`. On the site
`docs/` is the root, so links that cross its border lose that one step.
"""

import pathlib
import re

from mkdocs.structure.files import File

_PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "benchmarks/**/*.md",
    "benchmarks/**/*.png",
    "recipes/**/*.md",
    "recipes/**/*.png",
    "kerasmgpu/recipes/convnet/presets/*.yaml",
)

_FIGURE = re.compile(r"\b\d[\d.]*e-\d+")


def on_files(files, config):
    root = pathlib.Path(config.config_file_path).parent
    for pattern in _PAGES:
        for path in sorted(root.glob(pattern)):
            uri = path.relative_to(root).as_posix()
            file = File.generated(config, uri, abs_src_path=str(path))
            files.append(file)
    return files


def on_page_markdown(markdown, page, config, **_):
    uri = page.file.src_uri
    if (pathlib.Path(config.docs_dir) / uri).exists():
        out_of_docs = "../" * (uri.count("/") + 1)
        return re.sub(
            rf"\]\({re.escape(out_of_docs)}(?!\.\./)",
            f"]({out_of_docs[3:]}",
            markdown,
        )
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)


def on_page_content(html, **_):
    """Leaves out mkdocstrings' dash before no type; keeps words in one line.

    Browsers break lines behind the hyphens of `--flag` and `2e-02`.
    """
    html = re.sub(
        r'(<li class="doc-section-item field-body">)\s*–', r"\1", html
    )
    html = re.sub(r"<code>(?=--?\w[^\s<]*</code>)", '<code class="word">', html)
    return re.sub(
        r"<td\b.*?</td>",
        lambda cell: _FIGURE.sub(r'<span class="word">\g<0></span>', cell[0]),
        html,
        flags=re.DOTALL,
    )
