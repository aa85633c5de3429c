"""Notices that a machine will be taken away, which clouds give before they do.

| source                 | notice                                              |
|------------------------|-----------------------------------------------------|
| `"google"`             | the instance is preempted, or maintenance ends it   |
| `"aws"`                | the spot instance is stopped or terminated          |
| `"azure"`              | an event of type `Preempt` or `Terminate`           |
| a path                 | the file is there                                   |
| a function             | it returns a text                                   |

Sources: cloud.google.com/compute/docs/instances/create-use-preemptible and
/docs/metadata/predefined-metadata-keys, docs.aws.amazon.com
(spot-instance-termination-notices), learn.microsoft.com (scheduled-events).
"""

import http
import http.client
import json
import os
import pathlib
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import TypeAlias

from absl import logging

from kerasmgpu.errors import InputError, checked_path, shown

Look: TypeAlias = Callable[[], str | None]
"""Returns what a notice says; `None` while there is none."""

SECONDS = 5.0
"""Seconds between two looks: AWS's advice. Clouds take 30 to 120 s from a notice
to the end of a machine."""

_TIMEOUT_SECONDS = 2.0

ADDRESSES = {
    "google": "http://metadata.google.internal",
    "aws": "http://169.254.169.254",
    "azure": "http://169.254.169.254",
}

# The addresses are the machine's own: no proxy knows them.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

_FAILURES = (OSError, ValueError, KeyError, http.client.HTTPException)


class Notice:
    """Polls a source of preemption notices in a thread, from `start` to `stop`.

    Args:
        source: String, path-like or function of the module's table.

    Attributes:
        said: String, what the notice says; `None` while there is none.

    Raises:
        InputError: If `source` is none of these.
    """

    def __init__(self, source: str | os.PathLike[str] | Look) -> None:
        self.said: str | None = None
        self._source = source
        self._stopped = threading.Event()
        self._is_of_cloud = isinstance(source, str) and source in _CLOUDS
        if callable(source):
            self._look: Look = source
        elif self._is_of_cloud:
            self._look = _CLOUDS[str(source)]
        else:
            path = pathlib.Path(checked_path(source, "notice"))
            self._look = lambda: f"{path} is there" if path.exists() else None

    def start(self) -> None:
        """Looks once, and starts the thread.

        Raises:
            InputError: If no metadata server answers, or the file is there.
        """
        self.said, self._stopped = None, threading.Event()
        try:
            self.said = self._look()
        except _FAILURES as error:
            if not self._is_of_cloud:
                raise
            raise InputError(
                f"notice={self._source!r} asks the machine's metadata server, "
                f"which doesn't answer at {ADDRESSES[str(self._source)]}: "
                f"{error}. Leave `notice` out on other machines"
            ) from error
        if self.said and not (callable(self._source) or self._is_of_cloud):
            raise InputError(
                "the file of `notice` must not be there when training begins. "
                f"Received: notice={shown(self._source)}; delete it"
            )
        threading.Thread(
            target=self._watch,
            args=(self._stopped,),
            name="kerasmgpu-notice",
            daemon=True,
        ).start()

    def stop(self) -> None:
        """Ends the thread, which may be in its last look."""
        self._stopped.set()

    def _watch(self, stopped: threading.Event) -> None:
        has_failed = False
        while not self.said and not stopped.wait(SECONDS):
            try:
                self.said = self._look()
            except Exception as error:  # A function of the user's, too.
                if not has_failed:
                    logging.warning(
                        "Checkpoint: the look for a notice failed, and is "
                        "repeated: %s: %s",
                        type(error).__name__,
                        error,
                    )
                has_failed = True


def _answer(url: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Returns a server's answer; raises `OSError` if there is none."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as response:
        return response.read().decode()


def _google() -> str | None:
    instance = f"{ADDRESSES['google']}/computeMetadata/v1/instance"
    headers = {"Metadata-Flavor": "Google"}
    if _answer(f"{instance}/preempted", headers) == "TRUE":
        return "the instance is preempted"
    event = _answer(f"{instance}/maintenance-event", headers)
    return event if event.startswith("TERMINATE") else None


def _aws() -> str | None:
    latest = f"{ADDRESSES['aws']}/latest"
    lasts = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _answer(f"{latest}/api/token", lasts, "PUT")
    url = f"{latest}/meta-data/spot/instance-action"
    try:
        action = _answer(url, {"X-aws-ec2-metadata-token": token})
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            return None
        raise
    told = json.loads(action)
    return f"the instance will {told['action']} at {told['time']}"


def _azure() -> str | None:
    answer = _answer(
        f"{ADDRESSES['azure']}/metadata/scheduledevents?api-version=2020-07-01",
        {"Metadata": "true"},
    )
    for event in json.loads(answer)["Events"]:
        if event["EventType"] in {"Preempt", "Terminate"}:
            return f"{event['EventType']}, not before {event['NotBefore']}"
    return None


_CLOUDS: Mapping[str, Look] = {
    "google": _google,
    "aws": _aws,
    "azure": _azure,
}
