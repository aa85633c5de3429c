"""Writes in a background thread, one at a time."""

import threading
from collections.abc import Callable


class BackgroundWriter:
    """Runs one function at a time in a thread and keeps its error.

    The thread is not a daemon: Python waits for a write in progress before
    the process ends.

    Example:

    ```python
    writer = BackgroundWriter()
    writer.submit(lambda: print("written"))
    writer.wait()
    ```
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def submit(self, write: Callable[[], None]) -> None:
        """Waits for the previous write, then starts `write()`.

        Raises:
            Exception: The previous write's error; `write` is not started.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._run, args=(write,), name="kerasmgpu-checkpoint"
        )
        self._thread.start()

    def check(self) -> None:
        """Raises the error of a finished write; doesn't wait."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Waits for the write in progress.

        Raises:
            Exception: The write's error.
        """
        error = self.finish()
        if error is not None:
            raise error

    def finish(self) -> BaseException | None:
        """Waits for the write; returns its error, or `None`."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error

    def _run(self, write: Callable[[], None]) -> None:
        # Every exception is kept for the training thread, which raises it.
        try:
            write()
        except BaseException as error:
            self._error = error
