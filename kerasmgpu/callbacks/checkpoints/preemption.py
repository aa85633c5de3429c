"""Handles SIGTERM, which schedulers send before they reclaim a machine."""

import signal
import threading

from absl import logging


class SigtermWatch:
    """Records SIGTERM, instead of ending the process, from `start` to `stop`.

    Python calls signal handlers in the main thread only. In any other thread
    `start` installs none and logs a warning.
    """

    def __init__(self):
        self.received = False
        self._previous = None
        self._watching = False

    def start(self):
        """Installs the SIGTERM handler."""
        self.received = False
        if threading.current_thread() is not threading.main_thread():
            logging.warning(
                "fit runs outside the main thread, where Python gets no "
                "signals: SIGTERM will end the process without a checkpoint."
            )
            return
        self._previous = signal.signal(signal.SIGTERM, self._note)
        self._watching = True

    def stop(self):
        """Restores the previous handler; a second call has no effect.

        Python can't restore a handler that C code had installed; SIGTERM then
        ends the process, as by default.
        """
        if self._watching:
            self._watching = False
            signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)

    def _note(self, number, frame):
        self.received = True
