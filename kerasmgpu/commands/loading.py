"""One line on standard error when a command begins to import TensorFlow."""

import sys

_SLOW = {"tensorflow", "keras"}  # Keras imports TensorFlow.

LINE = "loading TensorFlow, which takes some seconds"


class _Announcement:
    """A finder of modules that finds none: it sees the import begin."""

    def find_spec(self, name, path=None, target=None):
        if name in _SLOW:
            sys.meta_path.remove(self)
            print(LINE, file=sys.stderr, flush=True)
        return None


def announce():
    """Prints `LINE` when TensorFlow or Keras is first imported, if ever.

    What a command refuses before that stays a single line.
    """
    if not _SLOW & sys.modules.keys():
        sys.meta_path.insert(0, _Announcement())
