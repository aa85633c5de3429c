"""Reads a page as a reader would."""

import html.parser
import re


class Page(html.parser.HTMLParser):
    """What stands in a page.

    Attributes:
        tables: Dictionary from captions to lists of rows of texts.
        text: String, all text outside of styles and scripts.
        ids: Set of strings.
        addresses: List of what attributes refer to.
    """

    _VOID = {"meta", "link", "br", "img"}

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.tables, self.text, self.ids, self.addresses = {}, "", set(), []
        self._open, self._tags = [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self._tags.append((tag, found))
        self.ids |= {found["id"]} if "id" in found else set()
        self.addresses += [found[a] for a in ("href", "src") if a in found]
        if tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        if tag not in self._VOID and tag != "path":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert tag == "path" or self._open.pop() == tag
        if tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data):
        if not {"style", "script"} & set(self._open):
            self.text += data
        if "caption" in self._open:
            self._caption += data
        elif {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data

    def find(self, tag, kind):
        """Attributes of all elements of a tag and a class."""
        return [
            found
            for name, found in self._tags
            if name == tag and kind in found.get("class", "").split()
        ]


def parse(text):
    """Returns the `Page`; its elements are nested rightly."""
    page = Page()
    page.feed(re.sub(r"<path ([^>]*)/>", r"<path \1>", text))
    page.close()
    assert page._open == []
    return page
