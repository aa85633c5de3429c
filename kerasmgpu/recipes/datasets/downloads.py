"""Downloads of data sets: complete and verified, or not at all."""

import contextlib
import http.client
import os
import pathlib
import re
import socket
import ssl
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator

from absl import logging

from kerasmgpu.errors import InputError

_BRING_IT = (
    "Download it on a machine with a network, copy it here and pass its path "
    "(--data_path)."
)
_NO_CONNECTION = (
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
# The last one is raised for a compression that zipfile doesn't know.
_DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


def fetch_zip(
    url: str, destination: pathlib.Path, timeout: float = 30.0
) -> None:
    """Downloads a zip file atomically and verifies its MD5 sum.

    The expected sum is read from `url` + `.md5`, since GroupLens updates files
    without renaming them. If the server has none (404), a warning is
    logged. Several processes may fetch a file at once; a failure leaves
    `destination` as it was.
    """
    import keras

    destination.parent.mkdir(parents=True, exist_ok=True)
    with (
        contextlib.ExitStack() as stack,
        tempfile.TemporaryDirectory(dir=destination.parent) as scratch,
        one_line_errors(url, _BRING_IT),
    ):
        # `get_file` has no time-out of its own.
        stack.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
        socket.setdefaulttimeout(timeout)
        path = keras.utils.get_file(
            destination.name,
            url,
            file_hash=_published_md5(f"{url}.md5"),
            hash_algorithm="md5",
            # Absolute: Keras silently takes another cache folder if it can't
            # write to this one.
            cache_subdir=str(pathlib.Path(scratch).absolute()),
        )
        remedy = f"Nothing was kept. Run again, or: {_BRING_IT}"
        with open_zip(path, url, remedy) as archive:
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"bad CRC-32 of {damaged}")
        os.replace(path, destination)


def _published_md5(url: str) -> str | None:
    text = ""
    try:
        with urllib.request.urlopen(url) as response:
            text = response.read(4096).decode("ascii", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 404:
            raise
    # `<sum>  <file>` or `MD5 (<file>) = <sum>`, as the tools write it.
    published = re.search(r"\b[0-9a-fA-F]{32}\b", text)
    if published is None:
        logging.warning("No MD5 sum is published at %s: not checked.", url)
        return None
    return published[0].lower()


@contextlib.contextmanager
def one_line_errors(name: str, remedy: str) -> Iterator[None]:
    """Turns failures of `keras.utils.get_file` into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"The download of {name} is damaged: its checksum is not the "
            f"published one. Nothing was kept. Run again, or: {remedy}"
        ) from error
    except Exception as error:
        # `get_file` itself raises a plain `Exception`.
        if type(error) is Exception or isinstance(error, _NO_CONNECTION):
            raise InputError(
                f"{name} can't be fetched: is there a network? ({error}) "
                f"{remedy}"
            ) from error
        raise


@contextlib.contextmanager
def open_zip(
    path: str | pathlib.Path, name: str, remedy: str
) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file to read; a damaged one raises an `InputError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGED_ZIP as error:
        raise InputError(
            f"{name} is not a valid zip file ({error}). {remedy}"
        ) from error
