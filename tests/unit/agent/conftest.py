"""An HTTP application, for the tests of probes and metrics."""

from __future__ import annotations

import http.client
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest


class App(http.server.ThreadingHTTPServer):
    """An application that responds with its status and records requests. `before` is called before each response."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        app = self
        self.status, self.body, self.requests = 200, b"fine", list[Any]()
        self.before: Callable[[], object] = lambda: None

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                app.requests.append(
                    (self.path, {k.lower(): v for k, v in self.headers.items()}, self.client_address[0])
                )
                app.before()
                self.send_response(app.status)
                self.send_header("location", "http://elsewhere.example/")
                self.end_headers()
                self.wfile.write(app.body)

            def log_message(self, *_: object) -> None:
                """Silence the log."""

        super().__init__(("127.0.0.1", 0), Handler)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


@pytest.fixture
def app() -> Iterator[App]:
    server = App()
    yield server
    server.stop()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
