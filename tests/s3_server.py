"""An S3 server of moto behind a proxy that breaks connections, for tests."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request

BUCKET = "bucket"


class Proxy:
    """Forwards connections to a port; breaks and delays some of what is sent.

    Attributes:
        broken: Share of the blocks in either direction at which a connection
            ends: before the server has a request, in the middle of one, and
            between what was done and the answer.
        slow: Share of the blocks that take a tenth of a second.
    """

    def __init__(self, port):
        self.broken = self.slow = 0.0
        self.num_broken = 0
        self._to, self._chance = port, random.Random(5)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self._listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                for pair in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._forward, args=pair, daemon=True
                    ).start()

    def _forward(self, source, target):
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 16):
                if self._chance.random() < self.slow:
                    time.sleep(0.1)
                if self._chance.random() < self.broken:
                    self.num_broken += 1
                    target.sendall(block[: len(block) // 2])
                    break
                target.sendall(block)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def running():
    """Context with the `Proxy` of a server that has an empty bucket.

    The environment names the proxy, and invalid credentials, while it runs.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    proxy = Proxy(port)
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        _make_bucket(port, server)
        yield proxy
    finally:
        server.kill()
        server.wait()
        proxy.close()
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _make_bucket(port, server):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{BUCKET}", method="PUT"
    )
    while server.poll() is None:
        try:
            urllib.request.urlopen(request).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server has ended")
