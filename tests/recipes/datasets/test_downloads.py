import contextlib
import hashlib
import http.server
import io
import socket
import threading
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


@pytest.fixture
def serve(monkeypatch):
    """Function of `{path: (status, announced length, body)}`: the base URL."""
    # Whatever proxy is set must not be asked for this machine.
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with contextlib.ExitStack() as stack:

        def start(answers):
            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    status, length, body = answers.get(self.path, (404, 0, b""))
                    self.send_response(status)
                    if length is not None:
                        self.send_header("Content-Length", str(length))
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_):
                    """Says nothing: the test reports what goes wrong."""

            server = stack.enter_context(
                http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            )
            threading.Thread(target=server.serve_forever, args=[0.01]).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


def answer(body, length=None, status=200):
    return status, len(body) if length is None else length, body


def fetch(base_url, destination):
    downloads.fetch_zip(f"{base_url}/ml.zip", destination, timeout=10)


def assert_fails(base_url, folder, message):
    """The download fails with one line, and the folder is as it was."""
    destination = folder / "ml.zip"
    destination.write_bytes(OLD)
    with pytest.raises(InputError, match=message) as error:
        fetch(base_url, destination)
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
    answers = {"/ml.zip": answer(ZIP)}
    if md5_text is not None:
        answers["/ml.zip.md5"] = answer(md5_text.encode())
    destination = tmp_path / "new" / "folder" / "ml.zip"
    fetch(serve(answers), destination)
    assert destination.read_bytes() == ZIP
    assert list(destination.parent.iterdir()) == [destination]


def test_length_that_is_not_announced(serve, tmp_path):
    fetch(serve({"/ml.zip": (200, None, ZIP)}), tmp_path / "ml.zip")
    assert (tmp_path / "ml.zip").read_bytes() == ZIP


def test_truncated_body(serve, tmp_path):
    base_url = serve({"/ml.zip": answer(ZIP[:-100], length=len(ZIP))})
    assert_fails(base_url, tmp_path, f"got only {len(ZIP) - 100} out of")


def test_wrong_md5(serve, tmp_path):
    wrong = hashlib.md5(b"something else").hexdigest()
    answers = {
        "/ml.zip": answer(ZIP),
        "/ml.zip.md5": answer(wrong.encode()),
    }
    assert_fails(serve(answers), tmp_path, "its checksum is not the published")


def test_checksum_that_cannot_be_had(serve, tmp_path):
    answers = {
        "/ml.zip": answer(ZIP),
        "/ml.zip.md5": answer(b"", status=500),
    }
    assert_fails(serve(answers), tmp_path, "can't be fetched.* 500")


def test_not_found(serve, tmp_path):
    assert_fails(serve({}), tmp_path, "404 -- Not Found")


def test_a_page_instead_of_a_zip(serve, tmp_path):
    page = b"<html>Please log in to this network</html>"
    assert_fails(serve({"/ml.zip": answer(page)}), tmp_path, "not a valid zip")


# A wrong checksum, and a first block of a type that deflate doesn't have.
@pytest.mark.parametrize(
    "position, byte",
    [(len(ZIP) // 2, ZIP[len(ZIP) // 2] ^ 0xFF), (30 + len(MEMBER), 0x07)],
)
def test_damaged_member(serve, tmp_path, position, byte):
    damaged = bytearray(ZIP)
    damaged[position] = byte
    base_url = serve({"/ml.zip": answer(bytes(damaged))})
    assert_fails(base_url, tmp_path, "not a valid zip")


def test_connection_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base_url = f"http://127.0.0.1:{port}"
    assert_fails(base_url, tmp_path, "can't be fetched: is there a network")


def test_unknown_host(tmp_path):
    # RFC 2606 keeps this name from ever existing.
    assert_fails("http://nowhere.invalid", tmp_path, "can't be fetched")


def test_a_server_that_falls_silent(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/ml.zip"
        with pytest.raises(InputError, match="can't be fetched"):
            downloads.fetch_zip(url, tmp_path / "ml.zip", timeout=0.2)
    assert not list(tmp_path.iterdir())


def test_full_disk_is_not_called_a_network_error(serve, tmp_path):
    base_url = serve({"/ml.zip": answer(ZIP)})
    (tmp_path / "folder").write_text("in the way")
    with pytest.raises(OSError, match="folder"):
        fetch(base_url, tmp_path / "folder" / "ml.zip")
