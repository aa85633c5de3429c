"""The site's address and its links to the sources, if CITATION.cff has them."""

import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    root = pathlib.Path(config.config_file_path).parent
    text = (root / "CITATION.cff").read_text("utf-8")
    found = dict(re.findall(r'^(repository-code|url): "(.+)"$', text, re.M))
    config.site_url = found.get("url", config.site_url)
    config.repo_url = found.get("repository-code", config.repo_url)
    return config


def on_page_markdown(markdown: str, config: MkDocsConfig, **_) -> str:
    return with_buttons(markdown, config.repo_url or "")


def with_buttons(markdown: str, repository: str) -> str:
    """Puts links behind each notebook that open it in Colab and on Kaggle."""
    host, _, path = repository.removeprefix("https://").partition("/")
    if host != "github.com":
        return markdown
    colab = f"https://colab.research.google.com/github/{path}/blob/main/docs/"
    kaggle = (
        f"https://kaggle.com/kernels/welcome?src={repository}/blob/main/docs/"
    )
    return re.sub(
        r"\]\((\w+\.ipynb)\)",
        rf"\g<0> ([Colab]({colab}\1), [Kaggle]({kaggle}\1))",
        markdown,
    )


def on_page_context(context: dict, page: Page, config: MkDocsConfig, **_):
    """Edit links lead to the file, wherever in the repository it is."""
    if config.repo_url and page.file.abs_src_path:
        root = pathlib.Path(config.config_file_path).parent
        source = pathlib.Path(page.file.abs_src_path).relative_to(root)
        page.edit_url = f"{config.repo_url}/edit/main/{source.as_posix()}"
    return context
