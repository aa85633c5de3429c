"""The list of images that a run leaves out."""

from typing import Any

import keras

from kerasmgpu.errors import printable
from kerasmgpu.recipes.shared import run_report
from kerasmgpu.recipes.shared.run_folder import RunFolder

FILE_NAME = "left_out.txt"


class LeftOutImages(keras.callbacks.Callback):
    """Records the names of images that can't be decoded or have no class.

    Prints the first at once. After a step with further ones it writes
    `left_out.txt`, a name per line, sorted. A resumed run reads the earlier
    names.
    """

    reads_batch_logs = False  # The batch hook doesn't read its logs.

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self._folder = folder
        self.names: set[str] = set()
        if folder.path is not None and (folder.path / FILE_NAME).exists():
            text = (folder.path / FILE_NAME).read_text(encoding="utf-8")
            self.names.update(text.splitlines())
        self._num_written = len(self.names)

    def add(self, encoded: bytes) -> None:
        """Adds the name of an image, which need not be text."""
        name = printable(encoded.decode("utf-8", "surrogateescape"))
        if not self.names:
            run_report.print_line(
                f"left out: {name} can't be decoded or has no class; "
                + self.where_all_are
            )
        self.names.add(name)

    @property
    def where_all_are(self) -> str:
        if self._folder.path is None:
            return f"with --output_dir, all are listed in {FILE_NAME}"
        return f"all are listed in {self._folder.path / FILE_NAME}"

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        names = sorted(self.names)  # A copy: the input adds to it.
        if self._folder.path is None or len(names) == self._num_written:
            return
        self._folder.write(FILE_NAME, "".join(f"{name}\n" for name in names))
        self._num_written = len(names)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.on_train_batch_end(epoch)
