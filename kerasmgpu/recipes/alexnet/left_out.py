"""The names of all images that a run leaves out, in a file of its folder."""

import keras

from kerasmgpu.errors import printable
from kerasmgpu.recipes.shared import run_report

FILE_NAME = "left_out.txt"


class LeftOutImages(keras.callbacks.Callback):
    """Keeps the names of images that can't be decoded or have no class.

    The first is printed at once. As a callback, it writes `left_out.txt` after
    every step in which there were more: a name per line, in their order. A run
    that goes on also knows the earlier names.
    """

    # Its hook for batches looks at no results.
    reads_batch_logs = False

    def __init__(self, folder):
        super().__init__()
        self._folder = folder
        self.names = set()
        if folder.path is not None and (folder.path / FILE_NAME).exists():
            text = (folder.path / FILE_NAME).read_text(encoding="utf-8")
            self.names.update(text.splitlines())
        self._num_written = len(self.names)

    def add(self, name):
        """Adds a name: bytes, which need not be text."""
        name = printable(name.decode("utf-8", "surrogateescape"))
        if not self.names:
            run_report.print_line(
                f"left out: {name} can't be decoded or has no class; "
                + self.where_all_are
            )
        self.names.add(name)

    @property
    def where_all_are(self):
        """What tells people where to look for all names."""
        if self._folder.path is None:
            return f"with --output_dir, all are listed in {FILE_NAME}"
        return f"all are listed in {self._folder.path / FILE_NAME}"

    def on_train_batch_end(self, batch, logs=None):
        self._write()

    def on_epoch_end(self, epoch, logs=None):
        self._write()

    def _write(self):
        names = sorted(self.names)  # The input may add to it meanwhile.
        if self._folder.path is None or len(names) == self._num_written:
            return
        self._folder.write(FILE_NAME, "".join(f"{name}\n" for name in names))
        self._num_written = len(names)
