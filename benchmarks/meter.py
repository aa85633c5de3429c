"""Measures wall time, CPU time and peak memory of this process."""

import resource
import sys
import time

from benchmarks.figures import Epoch

MEASURED_EPOCHS = 3
"""Number of measured epochs of a run, after the warm-up epoch."""


class EpochMeter:
    """Measures wall and CPU time of one epoch after another.

    Example:

    ```python
    meter = EpochMeter()
    meter.begin()
    train()
    epoch = meter.end()  # A `figures.Epoch`.
    ```
    """

    def begin(self):
        """Starts an epoch."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def end(self):
        """Ends the epoch; all work on devices must be complete."""
        return Epoch(
            time.perf_counter() - self._wall, time.process_time() - self._cpu
        )


def peak_memory_mb():
    """Returns the peak resident memory of this process, in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak if sys.platform == "darwin" else peak * 1024) / 1e6
