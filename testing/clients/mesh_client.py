"""A client of sidecars: mutual TLS as any identity, and requests sent exactly as written."""

from __future__ import annotations

import pathlib
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from testing.processes.agent_stub import Root

HTTP_ALPN, TCP_ALPN = ["istio-http/1.1", "istio"], ["istio"]
SECONDS = 15.0
GREETING = b"a greeting of the client\n"
"""Longer than the bytes that listener filters inspect. If a connection sends less, they wait 15 s for more."""


class MeshRequest(NamedTuple):
    """An HTTP request or, with `tcp`, a connection.

    `identity` is a SPIFFE identity, "" for plaintext. `source` is the address to connect from.
    """

    identity: str = "spiffe://cluster.local/ns/shop/sa/web"
    path: str = "/"
    method: str = "GET"
    host: str = "books.shop"
    headers: Mapping[str, str] = {}
    source: str = "127.0.0.1"
    sni: str = "books.shop"
    tcp: bool = False

    def __str__(self) -> str:
        words = (
            self.identity.removeprefix("spiffe://") or "plaintext",
            "tcp" if self.tcp else f"{self.method} {self.host}{self.path}",
        )
        sources = [f"from {self.source}"] if self.source != "127.0.0.1" else []
        return " ".join((*words, *sources, *(f"{name}={value[:20]}" for name, value in self.headers.items())))


class MeshClient:
    """Connects to ports of this machine, with certificates issued by a root."""

    def __init__(self, root: Root, work: pathlib.Path) -> None:
        self._root, self._work = root, work
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}

    def status(self, port: int, request: MeshRequest) -> int:
        """Return the status of the response, or 0 if the connection is closed without one."""
        text = self._exchange(port, request, _request(request), b"\r\n\r\n").decode(errors="replace")
        return int(text.split(" ", 2)[1]) if text.startswith("HTTP/1.1 ") else 0

    def answer(self, port: int, request: MeshRequest) -> str:
        """Return the whole response."""
        return self._exchange(port, request, _request(request), b"").decode(errors="replace")

    def connects(self, port: int, request: MeshRequest) -> bool:
        """Return whether the server behind a TCP port echoes bytes."""
        return self._exchange(port, request, GREETING, b"\n") == GREETING

    def _exchange(self, port: int, request: MeshRequest, data: bytes, end: bytes) -> bytes:
        """Return the bytes received until the connection ends, or until `end`."""
        received = b""
        try:
            with (
                socket.create_connection(("127.0.0.1", port), SECONDS, (request.source, 0)) as plain,
                self._wrap(plain, request) as connection,
            ):
                connection.sendall(data)
                while not (end and end in received) and (block := connection.recv(65536)):
                    received += block
        except (ConnectionError, ssl.SSLError):
            pass
        return received

    def _wrap(self, plain: socket.socket, request: MeshRequest) -> socket.socket:
        if not request.identity:
            return plain
        context = self._contexts.get((request.identity, request.tcp))
        if context is None:
            context = self._contexts[request.identity, request.tcp] = self._context(request)
        return context.wrap_socket(plain, server_hostname=request.sni)

    def _context(self, request: MeshRequest) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._root.pem.decode())
        context.check_hostname = False
        context.set_alpn_protocols(TCP_ALPN if request.tcp else HTTP_ALPN)
        chain, key = self._root.issue(request.identity)
        files = [self._work / f"client-{len(self._contexts)}.{part}" for part in ("crt", "key")]
        for file, data in zip(files, (chain, key), strict=True):
            file.write_bytes(data)
        context.load_cert_chain(files[0], files[1])
        return context


def _request(request: MeshRequest) -> bytes:
    headers = {"Host": request.host, "Connection": "close", "Content-Length": "0", **request.headers}
    head = "\r\n".join(
        (f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()))
    )
    return f"{head}\r\n\r\n".encode()
