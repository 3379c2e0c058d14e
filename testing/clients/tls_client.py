"""A TLS client, with or without a client certificate."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import socket
import ssl
import tempfile
from collections.abc import Iterator

from cryptography import x509

from testing.security.credentials import IssuedCertificate
from testing.servers.backends import HttpResponse

SECONDS = 10.0


def client_context(
    roots: bytes,
    certificate: IssuedCertificate | None = None,
    alpn: tuple[str, ...] = ("http/1.1",),
    check_hostname: bool = True,
) -> ssl.SSLContext:
    """Return a TLS context that verifies the server against these roots."""
    context = ssl.create_default_context(cadata=roots.decode())
    context.check_hostname = check_hostname
    context.set_alpn_protocols(list(alpn))
    if certificate is not None:
        with tempfile.NamedTemporaryFile() as file:
            pathlib.Path(file.name).write_bytes(certificate.chain + certificate.private_key)
            context.load_cert_chain(file.name)
    return context


class Connection:
    """A persistent TLS connection."""

    def __init__(self, port: int, name: str, context: ssl.SSLContext) -> None:
        self.name = name
        plain = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        try:
            self._socket = context.wrap_socket(plain, server_hostname=name)
        except BaseException:
            plain.close()
            raise
        self._http = http.client.HTTPConnection(name)
        self._http.sock = self._socket

    @property
    def serial(self) -> int:
        """Return the serial number of the server's certificate."""
        der = self._socket.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number

    def get(self, path: str = "/") -> HttpResponse:
        self._http.request("GET", path)
        response = self._http.getresponse()
        return HttpResponse(
            response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode(errors="replace")
        )

    def close(self) -> None:
        self._http.close()


@contextlib.contextmanager
def connected(port: int, name: str, context: ssl.SSLContext) -> Iterator[Connection]:
    connection = Connection(port, name, context)
    try:
        yield connection
    finally:
        connection.close()


def is_rejected(port: int, name: str, context: ssl.SSLContext) -> bool:
    """Return whether the server ends the connection in the handshake or, with TLS 1.3, after the client's certificate."""
    try:
        with connected(port, name, context) as connection:
            connection.get()
    except (ssl.SSLError, ConnectionError):
        return True
    return False
