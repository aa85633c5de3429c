"""Fetches a zip file so that nothing half-downloaded is ever used.

Sums are those that the server publishes today. There are none to pin, as pooch
would: GroupLens replaces files under their names.
"""

import contextlib
import hashlib
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
import uuid
import zipfile
import zlib

from absl import logging
from rich import progress
from rich.console import Console

from kerasmgpu.errors import InputError

_CHUNK_BYTES = 1 << 20
_BRING_IT = (
    "Download it on a machine with a network, copy it here and pass its path "
    "(--data_path)."
)


def fetch_zip(url, destination, md5_url=None, timeout=30.0):
    """Downloads a zip file, checks it and moves it into place.

    The bytes go to a `.part` file beside `destination`. It gets its final name
    once it has the length that the server announced, the MD5 sum that the
    server publishes (where it does), and every member passes its own checksum.
    Several processes may fetch the same file at once.

    Args:
        url: Where the file is, `http` or `https`.
        destination: `Path` to give it; its folder is made where needed.
        md5_url: Where the MD5 sum is published as text, or `None`. An answer
            404 means that none is published, which is logged.
        timeout: Seconds to wait for the server. Defaults to `30.0`.

    Raises:
        InputError: no network, an answer other than success, too few bytes, a
            wrong MD5 sum, or a broken zip. `destination` is left as it was.
        OSError: the file can't be written.

    Example:

    ```python
    url = "https://files.grouplens.org/datasets/movielens/ml-1m.zip"
    fetch_zip(url, Path("ml-1m.zip"), md5_url=url + ".md5")
    ```
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    part = destination.with_name(
        f"{destination.name}.{uuid.uuid4().hex[:8]}.part"
    )
    try:
        with open(part, "wb") as file:
            md5 = _download(url, file, timeout)
        if md5_url is not None:
            _check_md5(url, md5, md5_url, timeout)
        _check_zip(url, part)
        os.replace(part, destination)
    finally:
        part.unlink(missing_ok=True)


def _download(url, file, timeout):
    """Copies the answer to `file` and returns its MD5 sum in hexadecimal."""
    # A check against damage, not against an attacker: https is for that.
    md5 = hashlib.md5(usedforsecurity=False)
    with _one_line_errors(url), contextlib.ExitStack() as stack:
        response = stack.enter_context(
            urllib.request.urlopen(url, timeout=timeout)
        )
        length = response.headers.get("Content-Length")
        expected = int(length) if length and length.isdigit() else None
        bar = stack.enter_context(_progress_bar())
        task = bar.add_task(url.rsplit("/", 1)[-1], total=expected)
        received = 0
        while chunk := response.read(_CHUNK_BYTES):
            file.write(chunk)
            md5.update(chunk)
            received += len(chunk)
            bar.advance(task, len(chunk))
    if expected is not None and received != expected:
        raise InputError(
            f"The download of {url} broke off: received {received:,} of "
            f"{expected:,} bytes; nothing was kept. Run again, or: {_BRING_IT}"
        )
    # A power cut must not leave a file of the right name and no content.
    file.flush()
    os.fsync(file.fileno())
    return md5.hexdigest()


def _progress_bar():
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _check_md5(url, md5, md5_url, timeout):
    text = _small_text(md5_url, timeout)
    # `<sum>  <file>` or `MD5 (<file>) = <sum>`, as the tools write it.
    published = re.search(r"\b[0-9a-fA-F]{32}\b", text)
    if published is None:
        logging.warning("No MD5 sum is published at %s: not checked.", md5_url)
    elif published[0].lower() != md5:
        raise InputError(
            f"The download of {url} is damaged: its MD5 sum is {md5}, "
            f"published is {published[0].lower()}; nothing was kept. Run "
            f"again, or: {_BRING_IT}"
        )


def _small_text(url, timeout):
    """Returns the first 4 KiB of a text, nothing where there is none (404)."""
    with _one_line_errors(url):
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                return response.read(4096).decode("ascii", "replace")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != http.HTTPStatus.NOT_FOUND:
                raise
            return ""


def _check_zip(url, path):
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        damaged = str(error)
    if damaged is not None:
        raise InputError(
            f"What {url} sent is not a sound zip file ({damaged}); nothing "
            f"was kept. Run again, or: {_BRING_IT}"
        )


@contextlib.contextmanager
def _one_line_errors(url):
    """Turns errors of the network, and only those, into `InputError`."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise InputError(
            f"{url} can't be had: the server answered {error.code} "
            f"{error.reason}. {_BRING_IT}"
        ) from error
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        ssl.SSLError,
        ConnectionError,
        TimeoutError,
    ) as error:
        reason = getattr(error, "reason", None) or error
        raise InputError(
            f"{url} can't be reached: is there a network? ({reason}) "
            f"{_BRING_IT}"
        ) from error
