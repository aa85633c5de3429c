"""Sessions of Python's prompt in docstrings, as code.

Our docstrings say `Example:` and then `>>>`, as Keras's do. To Markdown that is
three quotations in each other.
"""

import re

import griffe

_SESSION = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Sessions(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = _SESSION.sub(
                r"```pycon\n\g<0>\n```", obj.docstring.value
            )
