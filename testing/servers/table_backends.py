"""Backends of a table of requests: each answers with its name, by plain HTTP or, where a client begins with it, by TLS."""

from __future__ import annotations

import http.server
import json
import pathlib
import socket
import ssl
import threading
import time
from typing import Any, NamedTuple

from testing.security.credentials import Issued

HANDSHAKE = 0x16
EXTRA = {"x-a": "was", "x-c": "was"}
"""Headers of every answer, for gateways to change."""


class Seen(NamedTuple):
    """A request as it came. `headers` has the values of each name, in order."""

    path: str
    headers: dict[str, list[str]]


class TableBackend(http.server.ThreadingHTTPServer):
    """`fail` counts down answers of `status`, `delay` is in seconds."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, name: str, issued: Issued, work: pathlib.Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name, self.seen = name, list[Seen]()
        self.fail, self.status, self.delay = 0, 503, 0.0
        file = work / f"{name}.pem"
        file.write_bytes(issued.chain + issued.private_key)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(file)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Run in the connection's own thread."""
        first = request.recv(1, socket.MSG_PEEK)
        if first and first[0] == HANDSHAKE:
            request = self._context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients that go away are part of it."""

    def reset(self) -> None:
        self.seen.clear()
        self.fail, self.status, self.delay = 0, 503, 0.0

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: the second would wait for the acknowledgement of the first, 40 ms
    server: TableBackend

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        self.rfile.read(length)
        backend = self.server
        headers = {name.lower(): self.headers.get_all(name) or [] for name in self.headers}
        backend.seen.append(Seen(self.path, headers))
        failing = backend.fail > 0  # decided before it waits: who reset it meanwhile meant another request
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
        """Says nothing."""
