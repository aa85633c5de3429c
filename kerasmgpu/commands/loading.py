"""Prints a line on standard error when a command begins to load TensorFlow."""

import sys

_SLOW = {"tensorflow", "keras"}  # Keras imports TensorFlow.

LINE = "loading TensorFlow, which takes some seconds"


class _Announcement:
    """An import finder that finds no modules, but prints `LINE`."""

    def find_spec(self, name, path=None, target=None):
        if name in _SLOW:
            sys.meta_path.remove(self)
            print(LINE, file=sys.stderr, flush=True)
        return None


def announce():
    """Prints `LINE` when TensorFlow or Keras is first imported, if ever.

    An error before the import is then the command's only line.
    """
    if not _SLOW & sys.modules.keys():
        sys.meta_path.insert(0, _Announcement())
