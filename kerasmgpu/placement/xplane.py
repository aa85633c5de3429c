"""Reads profiles of TensorFlow's profiler, `*.xplane.pb`.

The file is a protocol buffer message. Its schema is public (`xplane.proto` in
github.com/openxla/xla), but its Python module is not part of TensorFlow's
public API: needed fields are declared here, and all others are skipped.
"""

import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kerasmgpu.errors import InputError

# Message to its fields: number, type. A capitalised type is another message.
_FIELDS = {
    "Space": {"planes": (1, "Plane")},
    "Plane": {
        "name": (2, "string"),
        "lines": (3, "Line"),
        "event_names": (4, "EventName"),
        "stat_names": (5, "StatName"),
    },
    "Line": {"name": (2, "string"), "events": (4, "Event")},
    "Event": {
        "name_id": (1, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "Stat"),
    },
    "Stat": {
        "name_id": (1, "int64"),
        "text": (5, "string"),
        "ref": (7, "uint64"),
    },
    # Entries of the two maps from an id to a name.
    "EventName": {"key": (1, "int64"), "value": (2, "Name")},
    "StatName": {"key": (1, "int64"), "value": (2, "Name")},
    "Name": {"name": (2, "string")},
}
_REPEATED = {"planes", "lines", "events", "stats", "event_names", "stat_names"}


class Event(NamedTuple):
    """One event of a profile.

    Args:
        plane: Host or device: `"/host:CPU"`, `"/device:GPU:0"`, ….
        line: Thread or stream.
        name: Operation, kernel or copy.
        seconds: Duration.
        details: Dictionary of the event's stats that are strings.
    """

    plane: str
    line: str
    name: str
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
    space = _message_class("Space")()
    space.ParseFromString(paths[-1].read_bytes())
    for plane in space.planes:
        event_names = {e.key: e.value.name for e in plane.event_names}
        stat_names = {e.key: e.value.name for e in plane.stat_names}
        for line in plane.lines:
            for event in line.events:
                # Repeated strings are stored once, as the name of a stat.
                details = {
                    stat_names[stat.name_id]: stat.text
                    or stat_names.get(stat.ref, "")
                    for stat in event.stats
                }
                yield Event(
                    plane.name,
                    line.name,
                    event_names[event.name_id],
                    event.duration_ps * 1e-12,
                    details,
                )


def _message_class(name: str) -> Any:
    """Returns the class of a message of `_FIELDS`."""
    file = descriptor_pb2.FileDescriptorProto(
        name="kerasmgpu/xplane.proto", package="kerasmgpu", syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number)
            field.label = (
                kinds.LABEL_REPEATED
                if field_name in _REPEATED
                else kinds.LABEL_OPTIONAL
            )
            if kind in _FIELDS:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".kerasmgpu.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"kerasmgpu.{name}")
    )
