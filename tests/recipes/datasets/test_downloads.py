"""Downloads are complete and verified, or leave things as they were."""

import hashlib
import io
import socket
import zipfile

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import downloads

MEMBER = "ml-100k/u.data"
OLD = b"what was there before"


def make_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        text = "".join(f"{n}\t{n}\t3\t9\n" for n in range(5000))
        archive.writestr(MEMBER, text)
    return buffer.getvalue()


ZIP = make_zip()
MD5 = hashlib.md5(ZIP).hexdigest()


def answer(body, length=None, status=200):
    return status, len(body) if length is None else length, body


def damaged(position, byte):
    return answer(ZIP[:position] + bytes([byte]) + ZIP[position + 1 :])


def fetch(base_url, destination, timeout=10):
    downloads.fetch_zip(f"{base_url}/ml.zip", destination, timeout)


def assert_fails(base_url, folder, message, timeout=10):
    """The download fails with one line, and the folder is as it was."""
    destination = folder / "ml.zip"
    destination.write_bytes(OLD)
    with pytest.raises(InputError, match=message) as error:
        fetch(base_url, destination, timeout)
    assert "--data_path" in str(error.value)
    assert "\n" not in str(error.value)
    assert destination.read_bytes() == OLD
    assert list(folder.iterdir()) == [destination]


@pytest.mark.parametrize(
    "md5_text",
    [f"{MD5}  ml.zip\n", f"MD5 (ml.zip) = {MD5}\n", MD5.upper(), None, "none"],
    # The zip has the time of day, and so its sum is no name for a test.
    ids=["md5sum's", "BSD's", "capitals", "no such file", "no sum in it"],
)
def test_whole_download(serve, tmp_path, md5_text):
    # Without a length where there is no sum.
    announced = None if md5_text is None else len(ZIP)
    answers = {"/ml.zip": (200, announced, ZIP)}
    if md5_text is not None:
        answers["/ml.zip.md5"] = answer(md5_text.encode())
    destination = tmp_path / "new" / "folder" / "ml.zip"
    fetch(serve(answers), destination)
    assert destination.read_bytes() == ZIP
    assert list(destination.parent.iterdir()) == [destination]


@pytest.mark.parametrize(
    "file, md5, message",
    [
        (answer(ZIP[:-100], len(ZIP)), None, "got only .* out of"),
        (answer(ZIP), answer(b"0" * 32), "its checksum is not the published"),
        (answer(ZIP), answer(b"", status=500), "can't be fetched.* 500"),
        ((404, 0, b""), None, "404 -- Not Found"),
        (answer(b"<html>Please log in</html>"), None, "not a valid zip"),
        # A wrong checksum; a first block of a type that deflate doesn't have.
        (damaged(len(ZIP) // 2, ZIP[len(ZIP) // 2] ^ 0xFF), None, "not a val"),
        (damaged(30 + len(MEMBER), 0x07), None, "not a valid zip"),
    ],
    ids="cut md5 no_md5 not_found page damaged deflate".split(),
)
def test_what_is_not_whole_is_not_kept(serve, tmp_path, file, md5, message):
    answers = {"/ml.zip": file} | ({"/ml.zip.md5": md5} if md5 else {})
    assert_fails(serve(answers), tmp_path, message)


@pytest.mark.parametrize("silent", [False, True])
def test_no_connection_and_a_server_that_falls_silent(
    monkeypatch, tmp_path, silent
):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        if not silent:
            server.close()
        message = "can't be fetched: is there a network"
        assert_fails(url, tmp_path, message, timeout=0.2)


def test_full_disk_is_not_called_a_network_error(serve, tmp_path):
    base_url = serve({"/ml.zip": answer(ZIP)})
    (tmp_path / "folder").write_text("in the way")
    with pytest.raises(OSError, match="folder"):
        fetch(base_url, tmp_path / "folder" / "ml.zip")
