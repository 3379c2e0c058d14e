"""Fetches key sets over HTTP.

To prevent DNS rebinding, the address of each connection is checked when its socket is created, also after redirects.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import aiohttp.abc
import msgspec

from pilot.config.security.request_authentication import JwksKey
from pilot.lib.address_rules import AddressRules
from pilot.lib.tokens.envoy_jwks import has_keys

DISCOVERY = "/.well-known/openid-configuration"
_REDIRECTS = 5
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_MOVED = (301, 302, 303, 307, 308)
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "pyistiod"}


_LOOKUPS = 64
"""Maximum number of concurrent lookups of host names. A silent name server occupies one of them for up to 30 s."""


class KeySetError(Exception):
    """A key set cannot be fetched. Users see the message."""


class JwksClient:
    """HTTP client for key sets. `largest` is the maximum size of a response in bytes. `tls` verifies servers."""

    def __init__(self, rules: AddressRules, tls: ssl.SSLContext, largest: int) -> None:
        self._rules, self._tls, self._largest = rules, tls, largest
        self._session: aiohttp.ClientSession | None = None
        self._resolver = _Resolver()

    async def fetch(self, key: JwksKey, timeout: float) -> str:
        """Return a key set as a string. Raise KeySetError if it cannot be fetched within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                return await self._fetch(key)
        except TimeoutError as error:
            raise KeySetError(f"no response within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise KeySetError(_reason(error)) from error

    async def close(self) -> None:
        """Close the HTTP session."""
        await self._resolver.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _fetch(self, key: JwksKey) -> str:
        uri = key.uri or await self._discover(key.issuer)
        try:
            text = (await self._get(uri)).decode()
        except UnicodeDecodeError as error:
            raise KeySetError("the response is not UTF-8 text") from error
        if not has_keys(text):
            raise KeySetError("the response is not a key set with a supported key")
        return text

    async def _discover(self, issuer: str) -> str:
        """Return the URL of an issuer's key set, which is in the issuer's OpenID configuration.

        https://openid.net/specs/openid-connect-discovery-1_0.html
        """
        body = await self._get(issuer.removesuffix("/") + DISCOVERY)
        try:
            discovery: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            discovery = None
        uri = discovery.get("jwks_uri") if isinstance(discovery, dict) else None
        if not isinstance(uri, str):
            raise KeySetError("the issuer's OpenID configuration has no jwks_uri")
        return uri

    async def _get(self, url: str) -> bytes:
        """Return the response body for a URL, after following redirects."""
        for _ in range(_REDIRECTS + 1):
            _check_url(url)
            async with self._open().get(url, allow_redirects=False) as response:
                if response.status not in _MOVED:
                    return await self._read(response)
                target = urljoin(url, response.headers.get("Location", ""))
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise KeySetError("the server redirects from https to another scheme")
            url = target
        raise KeySetError(f"the server redirects more than {_REDIRECTS} times")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if not 200 <= response.status < 300:
            raise KeySetError(f"the server returned status {response.status}")
        body = bytearray()
        async for block in response.content.iter_any():
            body += block
            if len(body) > self._largest:
                raise KeySetError(f"the response is larger than {self._largest} bytes")
        return bytes(body)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                ssl=self._tls,
                force_close=True,
                use_dns_cache=False,
                socket_factory=self._connect,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=_HEADERS,
                trust_env=False,
            )
        return self._session

    def _connect(self, info: tuple[Any, ...]) -> socket.socket:
        """Check the address of a new connection, and return a socket for it."""
        family, kind, protocol, _, address = info
        self._rules.check(address[0])
        return socket.socket(family, kind, protocol)


class _Resolver(aiohttp.abc.AbstractResolver):
    """Resolves host names in threads of its own.

    The event loop's threads also read files and sign certificates. They must not wait for the name servers of users.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS, "jwks-lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        """Return the addresses of a host. Raise OSError if there are none."""
        lookup = functools.partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        infos = await asyncio.get_running_loop().run_in_executor(self._threads, lookup)
        return [
            aiohttp.abc.ResolveResult(
                hostname=host, host=str(address[0]), port=port, family=family, proto=protocol, flags=_NUMERIC
            )
            for family, _, protocol, _, address in infos
        ]

    async def close(self) -> None:
        """Cancel lookups that have not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise KeySetError("the URL is not an http or https URL")


def _reason(error: Exception) -> str:
    """Return the cause of an error, without any part of the response."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return str(inner) or type(inner).__name__


def make_tls(extra_roots: str, insecure: bool) -> ssl.SSLContext:
    """Return the TLS context that verifies servers with the system's roots and the roots in the file `extra_roots`.

    The file may be missing. With `insecure`, servers are not verified.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if extra_roots:
            context.load_verify_locations(cafile=extra_roots)
    except FileNotFoundError:
        pass
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
