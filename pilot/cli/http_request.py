"""HTTP requests of commands, with errors in plain words. Each function imports what it needs, because agents use it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_PORT = re.compile(r":?\d+")
_BARE_IPV6 = re.compile(r"[0-9A-Fa-f:]+:[0-9]+")
_HOST = re.compile(r"[^/?#@\s\[\]:]+|\[[0-9A-Fa-f:.%]+\]")


class AddressError(ValueError):
    """The address of a server is invalid. The message is for the user."""


class UnreachableError(Exception):
    """There is no HTTP response. The message is the reason, for the user."""

    @property
    def is_refused(self) -> bool:
        """Return whether nothing listens at the address."""
        return isinstance(getattr(self.__cause__, "reason", self.__cause__), ConnectionRefusedError)


class HttpResponse(NamedTuple):
    """A response, whatever its status. Header names are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    text: str


def parse_address(text: str, port: int) -> str:
    """Return the URL of an address without a trailing slash. Raise AddressError if it is invalid.

    An address is a URL, HOST:PORT, HOST, :PORT or PORT. Without a scheme, the default scheme is http, the default host
    127.0.0.1 and the default port `port`.
    """
    from urllib.parse import urlsplit

    address = text.strip()
    if _PORT.fullmatch(address):
        address = f"127.0.0.1:{address.removeprefix(':')}"
    elif _HOST.fullmatch(address):
        address = f"{address}:{port}"
    url = (address if "://" in address else f"http://{address}").rstrip("/")
    try:
        parts = urlsplit(url)
        if parts.netloc.count(":") > 2 and _BARE_IPV6.fullmatch(parts.netloc):
            bare_host, _, bare_port = parts.netloc.rpartition(":")
            raise AddressError(f"invalid address {text!r}: write IPv6 addresses in brackets: [{bare_host}]:{bare_port}")
        number = parts.port
    except AddressError:
        raise
    except ValueError as error:
        if "out of range" in str(error):
            raise AddressError(f"invalid address {text!r}: ports end at 65535") from None
        raise AddressError(f"invalid address {text!r}: use HOST:PORT or http://HOST:PORT") from None
    if parts.scheme not in ("http", "https"):
        raise AddressError(f"invalid address {text!r}: the scheme is {parts.scheme!r}, use http or https")
    if not parts.hostname or not url.isprintable() or " " in url:
        raise AddressError(f"invalid address {text!r}: use HOST:PORT or http://HOST:PORT")
    if number == 0:
        raise AddressError(f"invalid address {text!r}: 0 is not a port")
    if parts.query or parts.fragment:
        raise AddressError(f"invalid address {text!r}: it must not contain ? or #")
    if "@" in parts.netloc:
        host = parts.netloc.rpartition("@")[2]
        raise AddressError(f"invalid address: it must not contain a user name or password; use {parts.scheme}://{host}")
    return url


def send(url: str, method: str = "GET", body: bytes | None = None, seconds: float = 60.0) -> HttpResponse:
    """Send a request and return the response, even if its status is an error. Raise UnreachableError if there is
    none."""
    import http.client
    import urllib.error
    import urllib.request

    try:
        request = urllib.request.Request(url, data=body, method=method)
        try:
            response = urllib.request.urlopen(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            text = response.read().decode(errors="replace")
            return HttpResponse(response.status, response.reason, headers, text)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise UnreachableError(_explain(error, seconds)) from error


def _explain(error: Exception, seconds: float) -> str:
    """Return the reason why there is no response, in the user's words."""
    import http.client
    import socket
    import ssl

    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLError):
        return f"the TLS handshake failed ({getattr(cause, 'reason', None) or cause}); try http:// instead of https://"
    if isinstance(cause, TimeoutError):
        return f"no response within {seconds:g} s"
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused"
    if isinstance(cause, socket.gaierror):
        return "the host name is unknown"
    if isinstance(cause, ConnectionResetError | http.client.BadStatusLine | http.client.UnknownProtocol):
        return "the server there does not speak HTTP/1.1, so it may be a gRPC or TLS port"
    if isinstance(cause, OSError):
        return cause.strerror or str(cause)
    return str(cause) or type(cause).__name__
