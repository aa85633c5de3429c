"""Reads profiles of TensorFlow's profiler, `*.xplane.pb`.

The file is a protocol buffer message, `XSpace`. Its schema is public
(`xplane.proto` in github.com/openxla/xla), and its Python module is in
TensorFlow's wheel, though not in its public API: checked on TensorFlow 2.18 and
2.21.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from tensorflow.tsl.profiler.protobuf import xplane_pb2

from kerasmgpu.errors import InputError


class Event(NamedTuple):
    """One event of a profile.

    Args:
        plane: Host or device: `"/host:CPU"`, `"/device:GPU:0"`, ….
        line: Thread or stream.
        name: Operation, kernel or copy.
        start: Seconds from the start of its line.
        seconds: Duration.
        details: Dictionary of the event's stats that are strings.
    """

    plane: str
    line: str
    name: str
    start: float
    seconds: float
    details: dict[str, str]


def read(folder: str | os.PathLike[str]) -> Iterator[Event]:
    """Yields the events of the last profile below a folder.

    Args:
        folder: Folder that was passed to `tf.profiler.experimental.start`.

    Yields:
        `Event`s.

    Raises:
        InputError: If there is no profile.
    """
    paths = sorted(pathlib.Path(folder).glob("**/*.xplane.pb"))
    if not paths:
        raise InputError(
            f"no profile (*.xplane.pb) in {folder}, where TensorFlow's profiler "
            "was to write one"
        )
    space = xplane_pb2.XSpace.FromString(paths[-1].read_bytes())
    for plane in space.planes:
        names, stats = plane.event_metadata, plane.stat_metadata
        for line in plane.lines:
            for event in line.events:
                # Repeated strings are stored once, as the name of a stat.
                details = {
                    stats[stat.metadata_id].name: stat.str_value
                    or stats[stat.ref_value].name
                    for stat in event.stats
                }
                yield Event(
                    plane.name,
                    line.name,
                    names[event.metadata_id].name,
                    event.offset_ps * 1e-12,
                    event.duration_ps * 1e-12,
                    details,
                )
