"""Requests to one API server, as bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiohttp

from pilot.kube.access import Access, Credentials, TlsFiles
from pilot.kube.errors import KubeError, Unreachable, error_from_response
from pilot.kube.throttle import Throttle
from pilot.lib.build_info import build_info

JSON = "application/json"
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Seconds and probes: a peer that is gone without a word is noticed within a minute."""


class RequestTimeouts(NamedTuple):
    """Seconds: to connect, for an answer to go on, and for a watch until its next line."""

    connect: float = 10.0
    answer: float = 30.0
    watch: float = 660.0


class ApiClient:
    """One API server. `close` ends it; `patience` is how long it waits for what."""

    def __init__(
        self,
        credentials: Credentials,
        throttle: Throttle | None = None,
        patience: RequestTimeouts = RequestTimeouts(),
    ) -> None:
        self._credentials, self._throttle, self.patience = credentials, throttle or Throttle(0, 1), patience
        self._access: Access | None = None
        self._loaded_at = 0.0
        self._contexts: dict[TlsFiles, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Returns the body of the answer. ApiError where the server refuses, Unreachable where there is no whole answer."""
        await self._throttle.turn()
        with _network_errors(path):
            async with self._answer(method, path, query, body, content_type, accept, self.patience.answer) as response:
                return await response.read()

    async def lines(
        self, path: str, query: Mapping[str, str], accept: str = JSON, patient: bool = True
    ) -> AsyncGenerator[list[bytes], None]:
        """Yields the lines of an answer that goes on, those together that come together, until the server ends it.

        `patient`: long times without a line are expected. ApiError where the server refuses, Unreachable where the connection is lost or
        ends within a line.
        """
        await self._throttle.turn()
        seconds = self.patience.watch if patient else self.patience.answer
        with _network_errors(path):
            async with self._answer("GET", path, query, None, JSON, accept, seconds) as response:
                rest = b""
                async for data in response.content.iter_any():
                    *lines, rest = (rest + data).split(b"\n")
                    if lines:
                        yield lines
                if rest.strip():
                    raise Unreachable(f"{path}: the answer ends within a line")

    async def use(self, credentials: Credentials) -> None:
        """Goes on by other credentials; what is being asked for by the old ones gets no answer any more."""
        self._credentials, self._access = credentials, None
        await self.close()

    async def close(self) -> None:
        """Ends all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @contextlib.asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        accept: str,
        seconds: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Enters an answer of 2xx. Where the server does not know us any more, our credentials are read again once."""
        for attempt in (1, 2):
            access = await self._current_access()
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.patience.connect, sock_read=seconds)
            headers = {"Accept": accept, "User-Agent": f"pyistiod/{build_info().version}"}
            if access.authorization:
                headers["Authorization"] = access.authorization
            if body is not None:
                headers["Content-Type"] = content_type
            async with asyncio.timeout(self.patience.connect + self.patience.answer):  # until the answer begins
                response = await self._open_session().request(
                    method,
                    access.server + path,
                    params=query,
                    data=body,
                    headers=headers,
                    timeout=timeout,
                    proxy=access.proxy or None,
                    **self._tls(access),
                )
            async with response:
                if response.status == 401 and attempt == 1:
                    self._access = None
                    continue
                if response.status >= 300:
                    raise error_from_response(
                        response.status, await response.read(), response.headers.get("Retry-After", "")
                    )
                yield response
                return

    async def _current_access(self) -> Access:
        now = asyncio.get_running_loop().time()
        if self._access is None or now - self._loaded_at > self._credentials.seconds:
            self._access = await self._credentials.load()
            self._loaded_at = now
        return self._access

    def _tls(self, access: Access) -> dict[str, Any]:
        if access.tls is None:
            return {}
        context = self._contexts.get(access.tls)
        if context is None:
            self._contexts = {access.tls: access.tls.context()}
            context = self._contexts[access.tls]
        return {"ssl": context, **({"server_hostname": access.tls.name} if access.tls.name else {})}

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_socket)
            self._session = aiohttp.ClientSession(
                connector=connector, skip_auto_headers=("Accept-Encoding",), read_bufsize=1 << 18
            )
        return self._session


@contextlib.contextmanager
def _network_errors(path: str) -> Any:
    """Raises Unreachable for what the network does."""
    try:
        yield
    except KubeError:
        raise
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Unreachable(f"{path}: {str(error) or type(error).__name__}") from error


def _socket(address: Any) -> socket.socket:
    """Returns a socket that notices when its peer is gone."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
