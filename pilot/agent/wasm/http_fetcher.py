"""A blocking HTTP client with a deadline, a size limit and address rules.

The rules are applied to the address of each connection, so neither a redirect nor a DNS answer can circumvent them.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from pilot.lib.address_rules import AddressRules, BlockedAddress

_MAX_REDIRECTS, _BLOCK_BYTES = 10, 65536
_REDIRECTS = (301, 302, 303, 307, 308)
_CONNECT_SECONDS = 10.0


class FetchError(Exception):
    """A fetch failed. The message is for the log and contains no secrets.

    `result` is the value of the metric's label. `is_retryable` means that another attempt may succeed.
    """

    def __init__(self, text: str, result: str = "download_failure", is_retryable: bool = False) -> None:
        super().__init__(text)
        self.result, self.is_retryable = result, is_retryable


class FetchedResponse(NamedTuple):
    """A response that is not a redirect. The names of `headers` are in lower case, and repeated headers are joined with
    commas."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpFetcher:
    """An HTTP client. `max_bytes` limits the body.

    `tls` is the TLS context for servers that are verified, and `unverified_tls` the one for insecure servers.
    """

    def __init__(
        self,
        rules: AddressRules,
        tls: ssl.SSLContext,
        unverified_tls: ssl.SSLContext,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules, self._tls, self._unverified_tls = rules, tls, unverified_tls
        self.max_bytes, self._clock = max_bytes, clock

    def deadline(self, seconds: float) -> float:
        """Return the deadline of a fetch that starts now."""
        return self._clock() + seconds

    def remaining(self, deadline: float) -> float:
        """Return the seconds until a deadline. Raises FetchError if it has passed."""
        if (seconds := deadline - self._clock()) <= 0:
            raise FetchError("timed out", is_retryable=True)
        return seconds

    def get(
        self, url: str, deadline: float, headers: Mapping[str, str] | None = None, insecure: bool = False
    ) -> FetchedResponse:
        """Return the response for a URL after following redirects.

        Credentials are not forwarded to another host. Raises FetchError.
        """
        request_headers = dict(headers or {})
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                response = self._request(url, deadline, request_headers, insecure)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
                raise FetchError(
                    f"cannot fetch {_without_secrets(url)}: {reason}",
                    is_retryable=not isinstance(error, ValueError | BlockedAddress),
                ) from error
            if response.status not in _REDIRECTS:
                return response
            target = urljoin(url, response.headers.get("location", ""))
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise FetchError(f"{_without_secrets(url)} redirects from https to another scheme")
            if urlsplit(target).netloc != urlsplit(url).netloc:
                request_headers.pop("Authorization", None)
            url = target
        raise FetchError(f"{_without_secrets(url)}: more than {_MAX_REDIRECTS} redirects")

    def _request(self, url: str, deadline: float, headers: Mapping[str, str], insecure: bool) -> FetchedResponse:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("not an http or https URL")
        tls = None if parts.scheme == "http" else self._unverified_tls if insecure else self._tls
        connection = http.client.HTTPConnection(
            parts.hostname, parts.port or (80 if tls is None else 443), timeout=self.remaining(deadline)
        )
        try:
            connection.sock = self._connect(connection.host, connection.port, tls, deadline)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request(
                "GET", path, headers={"Host": parts.netloc.rpartition("@")[2], "User-Agent": "pilot-agent", **headers}
            )
            return self._read(connection, deadline)
        finally:
            connection.close()

    def _connect(self, host: str, port: int, tls: ssl.SSLContext | None, deadline: float) -> socket.socket:
        """Return a connection to a host. It uses the first address that is allowed and accepts connections."""
        failure: OSError = OSError("host not found")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            try:
                self._rules.check(str(address[0]))
                connection.settimeout(min(_CONNECT_SECONDS, self.remaining(deadline)))
                connection.connect(address)
                return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)
            except OSError as error:
                connection.close()
                failure = error
        raise failure

    def _read(self, connection: http.client.HTTPConnection, deadline: float) -> FetchedResponse:
        response = connection.getresponse()
        headers: dict[str, str] = {}
        for name, value in response.getheaders():
            headers[name.lower()] = f"{headers[name.lower()]}, {value}" if name.lower() in headers else value
        body = bytearray()
        while True:
            if connection.sock is not None:
                connection.sock.settimeout(self.remaining(deadline))
            block = response.read1(_BLOCK_BYTES)
            if not block:
                break
            self.remaining(deadline)
            body += block
            if len(body) > self.max_bytes:
                raise FetchError(f"the response is larger than {self.max_bytes} bytes")
        if response.length:
            raise OSError("the connection was closed before the end of the response")
        return FetchedResponse(response.status, headers, bytes(body))


def _without_secrets(url: str) -> str:
    """Return a URL without its user information and its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
