"""What one process uses: time by the clock, CPU time and memory."""

import resource
import sys
import time

from benchmarks.figures import Epoch

MEASURED_EPOCHS = 3
"""Epochs of warm steps that a run's medians are taken of."""


class EpochMeter:
    """Wall and CPU time of an epoch at a time.

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
        """Ends it; the devices must be done with it by now."""
        return Epoch(
            time.perf_counter() - self._wall, time.process_time() - self._cpu
        )


def peak_memory_mb():
    """The largest resident memory of this process so far, in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak if sys.platform == "darwin" else peak * 1024) / 1e6
