"""One write at a time, beside training."""

import threading


class BackgroundWriter:
    """Runs one function at a time in a thread; its errors are never lost.

    The thread is no daemon: Python waits for a write that is in flight before
    the process ends.

    Example:

    ```python
    writer = BackgroundWriter()
    writer.submit(lambda: print("written"))
    writer.wait()
    ```
    """

    def __init__(self):
        self._thread = None
        self._error = None

    def submit(self, write):
        """Starts `write()`, once the one before has ended.

        Raises:
            Exception: What the one before raised; `write` is not started.
        """
        self.wait()
        self._thread = threading.Thread(
            target=self._run, args=(write,), name="kerasmgpu-checkpoint"
        )
        self._thread.start()

    def check(self):
        """Raises what a write that has ended raised; doesn't wait."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self):
        """Waits until nothing is in flight.

        Raises:
            Exception: What the write raised.
        """
        error = self.finish()
        if error is not None:
            raise error

    def finish(self):
        """Waits; returns what the write raised, or `None`."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        return error

    def _run(self, write):
        # Whatever it is, the training thread gets to see it.
        try:
            write()
        except BaseException as error:
            self._error = error
