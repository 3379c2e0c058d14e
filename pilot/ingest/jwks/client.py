"""Fetches key sets over HTTP.

Every connection is checked by the address that it really goes to, of redirects and of names that resolve anew too, so that no
answer of a name server leads elsewhere between a check and its use.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from pilot.config.security.request_authentication import JwksKey
from pilot.lib.address_rules import AddressRules
from pilot.lib.envoy_jwks import has_keys

DISCOVERY = "/.well-known/openid-configuration"
_REDIRECTS = 5
_MOVED = (301, 302, 303, 307, 308)
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "pyistiod"}


class KeySetError(Exception):
    """A key set could not be had; its text says why, in words that are fit for users."""


class JwksClient:
    """A client of HTTP. `largest`: bytes of an answer; `tls` verifies servers."""

    def __init__(self, rules: AddressRules, tls: ssl.SSLContext, largest: int) -> None:
        self._rules, self._tls, self._largest = rules, tls, largest
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, key: JwksKey, timeout: float) -> str:
        """Returns the text of a key set; FetchError where it cannot be had within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                return await self._fetch(key)
        except TimeoutError as error:
            raise KeySetError(f"no answer within {timeout:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise KeySetError(_reason(error)) from error

    async def close(self) -> None:
        """Closes what is open."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _fetch(self, key: JwksKey) -> str:
        uri = key.uri or await self._discover(key.issuer)
        try:
            text = (await self._get(uri)).decode()
        except UnicodeDecodeError as error:
            raise KeySetError("the answer is no text") from error
        if not has_keys(text):
            raise KeySetError("the answer is no key set with a key that proxies understand")
        return text

    async def _discover(self, issuer: str) -> str:
        """Returns where an issuer says that its keys are (https://openid.net/specs/openid-connect-discovery-1_0.html)."""
        body = await self._get(issuer.removesuffix("/") + DISCOVERY)
        try:
            found: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = None
        uri = found.get("jwks_uri") if isinstance(found, dict) else None
        if not isinstance(uri, str):
            raise KeySetError("the issuer's OpenID configuration names no jwks_uri")
        return uri

    async def _get(self, url: str) -> bytes:
        """Returns the body behind a URL, after the redirects."""
        for _ in range(_REDIRECTS + 1):
            _check_url(url)
            async with self._open().get(url, allow_redirects=False) as response:
                if response.status not in _MOVED:
                    return await self._read(response)
                target = urljoin(url, response.headers.get("Location", ""))
            if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
                raise KeySetError("a redirect leads from https to another scheme")
            url = target
        raise KeySetError(f"more than {_REDIRECTS} redirects")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        if not 200 <= response.status < 300:
            raise KeySetError(f"status {response.status}")
        body = bytearray()
        async for block in response.content.iter_any():
            body += block
            if len(body) > self._largest:
                raise KeySetError(f"the answer has more than {self._largest} bytes")
        return bytes(body)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._tls, force_close=True, use_dns_cache=False, socket_factory=self._connect
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
        """Returns the socket of a connection that is about to be made."""
        family, kind, protocol, _, address = info
        self._rules.check(address[0])
        return socket.socket(family, kind, protocol)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise KeySetError("not a URL of http or https")


def _reason(error: Exception) -> str:
    """Returns what went wrong, without what an answer may have said."""
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return str(inner) or type(inner).__name__


def make_tls(extra_roots: str, insecure: bool) -> ssl.SSLContext:
    """Returns how servers are verified: by the roots of the system and those of a file, which may be missing. `insecure`: not at all."""
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
