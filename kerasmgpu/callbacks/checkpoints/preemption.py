"""SIGTERM, as schedulers send it before they take a machine away."""

import signal
import threading

from absl import logging


class SigtermWatch:
    """Notes SIGTERM instead of dying of it, between `start` and `stop`.

    Python calls signal handlers in the main thread only. Elsewhere `start`
    leaves signals alone and says so.
    """

    def __init__(self):
        self.received = False
        self._previous = None
        self._watching = False

    def start(self):
        """Takes SIGTERM over."""
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
        """Gives SIGTERM back to whoever had it; does nothing the second time.

        A handler that C code had installed can't be put back from Python;
        SIGTERM then ends the process, as by default.
        """
        if self._watching:
            self._watching = False
            signal.signal(signal.SIGTERM, self._previous or signal.SIG_DFL)

    def _note(self, number, frame):
        self.received = True
