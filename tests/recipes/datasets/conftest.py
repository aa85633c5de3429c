"""A server in place of GroupLens's."""

import contextlib
import http.server
import threading

import pytest


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
