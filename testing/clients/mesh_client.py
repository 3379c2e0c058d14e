"""A client of a sidecar that speaks as one of the mesh: mutual TLS as any identity, and requests exactly as they are written."""

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
"""Longer than what listener filters look for at the start of a connection. They wait 15 s for more."""


class Ask(NamedTuple):
    """A request, or with `tcp` a connection. `by`: a SPIFFE identity, "" for plain text; `source`: the address that it comes from."""

    by: str = "spiffe://cluster.local/ns/shop/sa/web"
    path: str = "/"
    method: str = "GET"
    host: str = "books.shop"
    headers: Mapping[str, str] = {}
    source: str = "127.0.0.1"
    sni: str = "books.shop"
    tcp: bool = False

    def __str__(self) -> str:
        said = (
            self.by.removeprefix("spiffe://") or "nobody",
            "tcp" if self.tcp else f"{self.method} {self.host}{self.path}",
        )
        more = [f"from {self.source}"] if self.source != "127.0.0.1" else []
        return " ".join((*said, *more, *(f"{name}={value[:20]}" for name, value in self.headers.items())))


class MeshClient:
    """Connects to ports of this machine with certificates of a root."""

    def __init__(self, root: Root, work: pathlib.Path) -> None:
        self._root, self._work = root, work
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}

    def status(self, port: int, ask: Ask) -> int:
        """The status of the answer to a request; 0 where the connection is closed without one."""
        text = self._exchange(port, ask, _request(ask), b"\r\n\r\n").decode(errors="replace")
        return int(text.split(" ", 2)[1]) if text.startswith("HTTP/1.1 ") else 0

    def answer(self, port: int, ask: Ask) -> str:
        """The whole answer to a request."""
        return self._exchange(port, ask, _request(ask), b"").decode(errors="replace")

    def connects(self, port: int, ask: Ask) -> bool:
        """Whether bytes come back from the server behind a port of TCP."""
        return self._exchange(port, ask, GREETING, b"\n") == GREETING

    def _exchange(self, port: int, ask: Ask, data: bytes, end: bytes) -> bytes:
        """What comes back until the connection ends, or until `end`."""
        received = b""
        try:
            with (
                socket.create_connection(("127.0.0.1", port), SECONDS, (ask.source, 0)) as plain,
                self._wrap(plain, ask) as connection,
            ):
                connection.sendall(data)
                while not (end and end in received) and (block := connection.recv(65536)):
                    received += block
        except (ConnectionError, ssl.SSLError):
            pass
        return received

    def _wrap(self, plain: socket.socket, ask: Ask) -> socket.socket:
        if not ask.by:
            return plain
        context = self._contexts.get((ask.by, ask.tcp))
        if context is None:
            context = self._contexts[ask.by, ask.tcp] = self._context(ask)
        return context.wrap_socket(plain, server_hostname=ask.sni)

    def _context(self, ask: Ask) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._root.pem.decode())
        context.check_hostname = False
        context.set_alpn_protocols(TCP_ALPN if ask.tcp else HTTP_ALPN)
        chain, key = self._root.issue(ask.by)
        files = [self._work / f"client-{len(self._contexts)}.{part}" for part in ("crt", "key")]
        for file, data in zip(files, (chain, key), strict=True):
            file.write_bytes(data)
        context.load_cert_chain(files[0], files[1])
        return context


def _request(ask: Ask) -> bytes:
    headers = {"Host": ask.host, "Connection": "close", "Content-Length": "0", **ask.headers}
    head = "\r\n".join((f"{ask.method} {ask.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())))
    return f"{head}\r\n\r\n".encode()
