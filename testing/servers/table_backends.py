"""Backends for tables of requests. They answer with their name, over HTTP or TLS, whichever the client starts."""

from __future__ import annotations

import http.server
import json
import pathlib
import socket
import ssl
import threading
import time
from typing import Any, NamedTuple

from testing.security.credentials import IssuedCertificate

HANDSHAKE = 0x16
EXTRA = {"x-a": "was", "x-c": "was"}
"""Headers of every response, for gateways to modify."""


class ReceivedRequest(NamedTuple):
    """A received request. `headers` has the values of each name, in order."""

    path: str
    headers: dict[str, list[str]]


class TableBackend(http.server.ThreadingHTTPServer):
    """A backend. The next `fail` requests get `status`; `delay` is in seconds."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, name: str, issued: IssuedCertificate, work: pathlib.Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name, self.requests = name, list[ReceivedRequest]()
        self.fail, self.status, self.delay = 0, 503, 0.0
        file = work / f"{name}.pem"
        file.write_bytes(issued.chain + issued.private_key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in its own thread."""
        first = request.recv(1, socket.MSG_PEEK)
        if first and first[0] == HANDSHAKE:
            request = self._context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore disconnecting clients."""

    def reset(self) -> None:
        self.requests.clear()
        self.fail, self.status, self.delay = 0, 503, 0.0

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet, to avoid a delayed acknowledgement of 40 ms
    server: TableBackend

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.rfile.read(length)
        backend = self.server
        headers = {name.lower(): self.headers.get_all(name) or [] for name in self.headers}
        backend.requests.append(ReceivedRequest(self.path, headers))
        failing = backend.fail > 0  # decided before the delay, because a reset meanwhile is for later requests
        backend.fail -= failing
        time.sleep(backend.delay)
        body = json.dumps({"backend": backend.name}).encode()
        self.send_response(backend.status if failing else 200)
        for name, value in {**EXTRA, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        """Do not log."""
