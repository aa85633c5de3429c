"""Writes TensorBoard event files without the `tensorboard` package."""

import math
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError, checked_path

_BUCKETS = 30
_FLUSH_MILLISECONDS = 10_000
_MOST_QUEUED = 1000  # If more steps are queued, `write` waits for the file.


class EventFile:
    """Writes a new event file into a folder: one run in TensorBoard.

    Args:
        folder: String or path-like, local or of a file system that TensorFlow
            knows; created if it is missing.

    Raises:
        InputError: If the folder can't be written.

    Example:

    ```python
    EventFile("logs").write(100, {"throughput/samples_per_sec": 1234.5})
    ```
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = checked_path(folder, "log_dir", of_tensorflow=True)
        try:
            tf.io.gfile.makedirs(os.fspath(folder))
            self._writer = tf.summary.create_file_writer(
                os.fspath(folder), _MOST_QUEUED, _FLUSH_MILLISECONDS
            )
        except tf.errors.OpError as error:
            raise InputError(
                f"log_dir={os.fspath(folder)!r} can't be written: "
                f"{error.message}. Give another folder"
            ) from None

    def write(
        self,
        step: int,
        scalars: Mapping[str, float | None],
        histograms: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Writes a step's figures, except `None`, NaN and empty arrays.

        They are in the file after `flush` or `close` at the latest.

        Args:
            scalars: Dictionary from tags to floats.
            histograms: Dictionary from tags to NumPy arrays of values.
        """
        summary = tf.compat.v1.Summary()
        for tag, value in scalars.items():
            if value is not None and not math.isnan(value):
                summary.value.add(tag=tag, simple_value=value)
        for tag, values in (histograms or {}).items():
            if values.size:
                summary.value.add(tag=tag, histo=_histogram(values))
        # One operation for all of them.
        with self._writer.as_default(step):
            tf.summary.experimental.write_raw_pb(summary.SerializeToString())

    def flush(self) -> None:
        """Flushes the buffer to the file."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


def _histogram(values: np.ndarray) -> tf.compat.v1.HistogramProto:
    counts, edges = np.histogram(values, _BUCKETS)
    return tf.compat.v1.HistogramProto(
        min=values.min(),
        max=values.max(),
        num=values.size,
        sum=values.sum(),
        sum_squares=np.square(values).sum(),
        bucket_limit=edges[1:],
        bucket=counts,
    )
