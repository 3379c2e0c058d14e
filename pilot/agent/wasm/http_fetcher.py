"""Fetches over HTTP, in threads, within a time and a size.

Every connection is checked by the address that it really goes to, so that neither a redirect nor a name server leads to what may not be
asked.
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

_REDIRECTS, _BLOCK = 10, 65536
_MOVED = (301, 302, 303, 307, 308)
_CONNECT_SECONDS = 10.0


class FetchError(Exception):
    """Something could not be had; the text is for the log and has no secrets. `result` is what metrics call it, `passing` says that it may work
    when it is tried again."""

    def __init__(self, text: str, result: str = "download_failure", passing: bool = False) -> None:
        super().__init__(text)
        self.result, self.passing = result, passing


class FetchedResponse(NamedTuple):
    """An answer that is no redirect. `headers` are by lower-case names; those of one name are joined by commas."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpFetcher:
    """A client of HTTP. `largest`: bytes of a body; `tls` and `unverified` are how servers are verified, the second where callers want none."""

    def __init__(
        self,
        rules: AddressRules,
        tls: ssl.SSLContext,
        unverified: ssl.SSLContext,
        largest: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules, self._tls, self._unverified, self.largest, self._clock = rules, tls, unverified, largest, clock

    def deadline(self, seconds: float) -> float:
        """Returns the time at which a fetch that begins now ends."""
        return self._clock() + seconds

    def left(self, deadline: float) -> float:
        """Returns the seconds that are left; FetchError where there are none."""
        if (left := deadline - self._clock()) <= 0:
            raise FetchError("it took too long")
        return left

    def get(
        self, url: str, deadline: float, headers: Mapping[str, str] | None = None, insecure: bool = False
    ) -> FetchedResponse:
        """Returns what is behind a URL, after the redirects. Credentials do not go along to another host. FetchError where there is no answer."""
        sent = dict(headers or {})
        for _ in range(_REDIRECTS + 1):
            try:
                answer = self._ask(url, deadline, sent, insecure)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = str(error) or type(error).__name__
                raise FetchError(
                    f"{_shown(url)} does not answer: {reason}",
                    passing=not isinstance(error, ValueError | BlockedAddress),
                ) from error
            if answer.status not in _MOVED:
                return answer
            target = urljoin(url, answer.headers.get("location", ""))
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise FetchError(f"{_shown(url)} leads from https to another scheme")
            if urlsplit(target).netloc != urlsplit(url).netloc:
                sent.pop("Authorization", None)
            url = target
        raise FetchError(f"{_shown(url)}: more than {_REDIRECTS} redirects")

    def _ask(self, url: str, deadline: float, headers: Mapping[str, str], insecure: bool) -> FetchedResponse:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("not a URL of http or https")
        tls = None if parts.scheme == "http" else self._unverified if insecure else self._tls
        connection = http.client.HTTPConnection(
            parts.hostname, parts.port or (80 if tls is None else 443), timeout=self.left(deadline)
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
        """Returns a connection to the first address of a host that takes one and may be asked."""
        failure: OSError = OSError("there is no such name")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            opened = socket.socket(family, kind, protocol)
            try:
                self._rules.check(str(address[0]))
                opened.settimeout(min(_CONNECT_SECONDS, self.left(deadline)))
                opened.connect(address)
                return opened if tls is None else tls.wrap_socket(opened, server_hostname=host)
            except OSError as error:
                opened.close()
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
                connection.sock.settimeout(self.left(deadline))
            block = response.read1(_BLOCK)
            if not block:
                break
            self.left(deadline)
            body += block
            if len(body) > self.largest:
                raise FetchError(f"the answer has more than {self.largest} bytes")
        if response.length:
            raise OSError("the answer ended too early")
        return FetchedResponse(response.status, headers, bytes(body))


def _shown(url: str) -> str:
    """Returns a URL without what may be a secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
