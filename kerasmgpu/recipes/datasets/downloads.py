"""Downloads of data sets: whole and checked, or not at all."""

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

from absl import logging

from kerasmgpu.errors import InputError

_TIMEOUT_SECONDS = 30.0
_BRING_IT = (
    "Download it on a machine with a network, copy it here and pass its path "
    "(--data_path)."
)


def fetch_zip(url, destination, timeout=_TIMEOUT_SECONDS):
    """Downloads a zip file, compares its MD5 sum and moves it into place.

    The sum is the one that the server publishes today, as `url` with `.md5`:
    GroupLens replaces files under their names. Where the server has none (404),
    a line says so. Several processes may fetch a file at once; one that can't
    be fetched, or is damaged, leaves `destination` as it was.
    """
    import keras

    destination.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=destination.parent) as scratch,
        _timeout(timeout),
        one_line_errors(url, _BRING_IT),
    ):
        path = keras.utils.get_file(
            destination.name,
            url,
            file_hash=_published_md5(f"{url}.md5", timeout),
            hash_algorithm="md5",
            # Absolute: Keras takes another cache folder without saying so
            # where it can't write to one.
            cache_subdir=str(pathlib.Path(scratch).absolute()),
        )
        with zip_errors(url, f"Nothing was kept. Run again, or: {_BRING_IT}"):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise zipfile.BadZipFile(f"bad CRC-32 of {damaged}")
        os.replace(path, destination)


def _published_md5(url, timeout):
    """The MD5 sum that a server publishes, or `None`."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            text = response.read(4096).decode("ascii", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 404:
            raise
        text = ""
    # `<sum>  <file>` or `MD5 (<file>) = <sum>`, as the tools write it.
    published = re.search(r"\b[0-9a-fA-F]{32}\b", text)
    if published is None:
        logging.warning("No MD5 sum is published at %s: not checked.", url)
    return published and published[0].lower()


@contextlib.contextmanager
def _timeout(seconds):
    """Ends connections that fall silent: `get_file` has no time-out."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


@contextlib.contextmanager
def one_line_errors(name, remedy):
    """Turns failures of `keras.utils.get_file`, and only those, into one line.

    It says what is fetched (`name`) and what to do without a network.
    """
    try:
        yield
    except InputError:
        raise
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        ssl.SSLError,
        ConnectionError,
        TimeoutError,
    ) as error:
        raise _not_fetched(name, error, remedy) from error
    except ValueError as error:
        raise InputError(
            f"The download of {name} is damaged: its checksum is not the "
            f"published one. Nothing was kept. Run again, or: {remedy}"
        ) from error
    except Exception as error:
        # Keras raises the base class itself where it can't fetch a file.
        if type(error) is not Exception:
            raise
        raise _not_fetched(name, error, remedy) from error


def _not_fetched(name, error, remedy):
    return InputError(
        f"{name} can't be fetched: is there a network? ({error}) {remedy}"
    )


@contextlib.contextmanager
def zip_errors(path, remedy):
    """Turns errors of a damaged zip file into `InputError`."""
    try:
        yield
    # The last one stands for a compression that zipfile doesn't know.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
    ) as error:
        raise InputError(
            f"{path} is not a sound zip file ({error}). {remedy}"
        ) from error
