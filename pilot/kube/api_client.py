"""HTTP client for one API server. Request and response bodies are bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, NamedTuple

import aiohttp

from pilot.kube.access import Access, TlsFiles
from pilot.kube.api_access import Credentials
from pilot.kube.api_errors import KubeError, ResponseTooLarge, Unreachable, error_from_response
from pilot.lib.build_info import build_info

JSON = "application/json"
LARGEST_RESPONSE = 32 << 20
"""Maximum size in bytes of a response, and of each line of a streaming response. etcd stores at most 1.5 MiB for an
object, and its JSON is at most 10 times as large."""
_LARGEST_ERROR = 64 << 10
"""Maximum number of bytes to read from the body of an error response."""
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""TCP keepalive options: idle time and interval in seconds, and number of probes. A dead peer is detected within a
minute."""


class RequestTimeouts(NamedTuple):
    """Timeouts in seconds.

    connect: Maximum time to establish a connection.
    response: Maximum gap between two parts of a response.
    watch: Maximum gap between two events of a watch.
    """

    connect: float = 10.0
    response: float = 30.0
    watch: float = 660.0


class Throttle:
    """Limits requests to `rate` per second, with bursts of up to `burst`. A rate of 0 disables the limit.

    It prevents the control plane from crowding out other clients of the API server. A request that is cancelled while
    it waits does not delay the requests after it.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, max(burst, 1)
        self._free_at = float("-inf")
        self._turn = asyncio.Lock()

    async def acquire(self) -> None:
        """Wait until the next request is allowed."""
        if self._rate <= 0:
            return
        step = 1.0 / self._rate
        async with self._turn:
            now = asyncio.get_running_loop().time()
            free_at = max(self._free_at, now - (self._burst - 1) * step)
            if free_at > now:
                await asyncio.sleep(free_at - now)
            self._free_at = free_at + step


class ApiClient:
    """Client for one API server. Call `close` when it is no longer needed."""

    def __init__(
        self,
        credentials: Credentials,
        throttle: Throttle | None = None,
        timeouts: RequestTimeouts = RequestTimeouts(),
    ) -> None:
        self._credentials, self._throttle, self.timeouts = credentials, throttle or Throttle(0, 1), timeouts
        self._access: Access | None = None
        self._loaded_at = 0.0
        self._contexts: dict[TlsFiles, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None
        self._reachable = asyncio.Event()
        self._reachable.set()

    async def pause(self, seconds: float, spread: float) -> None:
        """Wait before a request is repeated. If the server is unreachable, wait only until it responds to any request,
        and then for at most `spread` seconds, which should be random."""
        if self._reachable.is_set():
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._reachable.wait()
                await asyncio.sleep(spread)

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        throttle: Throttle | None = None,
        largest: int = LARGEST_RESPONSE,
    ) -> bytes:
        """Return the body of the response. `throttle` replaces the throttle of the client.

        Raise ApiError if the server rejects the request. Raise Unreachable if there is no response or it is incomplete.
        Raise ResponseTooLarge if the body has more than `largest` bytes.
        """
        await (throttle or self._throttle).acquire()
        with _network_errors(path):
            async with self._respond(
                method, path, query, body, content_type, accept, self.timeouts.response
            ) as response:
                answer = await _read_body(response, largest)
        if len(answer) > largest:
            raise ResponseTooLarge(f"{path}: the response is larger than {largest} bytes")
        return answer

    async def lines(
        self, path: str, query: Mapping[str, str], accept: str = JSON, idle: bool = True
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a streaming response in batches, as they arrive, until the server ends it.

        If `idle` is set, long gaps between lines are allowed, as in a watch. Raise ApiError if the server rejects the
        request. Raise Unreachable if the connection is lost or the response ends in the middle of a line. Raise
        ResponseTooLarge if a line is too long.
        """
        await self._throttle.acquire()
        seconds = self.timeouts.watch if idle else self.timeouts.response
        with _network_errors(path):
            async with self._respond("GET", path, query, None, JSON, accept, seconds) as response:
                rest = bytearray()  # the line that is not complete yet
                async for data in response.content.iter_any():
                    first, *others = data.split(b"\n")
                    rest += first
                    if len(rest) > LARGEST_RESPONSE:
                        raise ResponseTooLarge(
                            f"{path}: a line of the response is larger than {LARGEST_RESPONSE} bytes"
                        )
                    if others:
                        lines = [bytes(rest), *others[:-1]]
                        rest = bytearray(others[-1])
                        yield lines
                if rest.strip():
                    raise Unreachable(f"{path}: the response ended in the middle of a line")

    @contextlib.asynccontextmanager
    async def websocket(
        self, path: str, query: Mapping[str, str], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Return a context manager for a WebSocket of a subprotocol.

        Raise ApiError if the server rejects the request. Raise Unreachable if it does not respond, or not with a
        WebSocket.
        """
        access = await self._current_access()
        headers = {"User-Agent": f"pyistiod/{build_info().version}"}
        if access.authorization:
            headers["Authorization"] = access.authorization
        with _network_errors(path):
            try:
                async with asyncio.timeout(self.timeouts.connect + self.timeouts.response):
                    socket = await self._open_session().ws_connect(
                        access.server + path,
                        params=query,
                        protocols=(protocol,),
                        headers=headers,
                        proxy=access.proxy or None,
                        max_msg_size=LARGEST_RESPONSE,
                        **self._tls(access),
                    )
            except aiohttp.WSServerHandshakeError as error:
                if error.status == 101:
                    raise Unreachable(
                        "the node serves this over SPDY, not over WebSockets; run kubectl port-forward, and pass the "
                        "local address with --address, or with --envoy for an Envoy"
                    ) from error
                raise error_from_response(error.status, b"", "") from error
        async with socket:
            yield socket

    async def use_credentials(self, credentials: Credentials) -> None:
        """Switch to other credentials, and abort requests that use the old credentials."""
        self._credentials, self._access = credentials, None
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @contextlib.asynccontextmanager
    async def _respond(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        accept: str,
        seconds: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Return a context manager for a successful response. If the server returns 401, reload the credentials and
        retry once."""
        for attempt in (1, 2):
            access = await self._current_access()
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeouts.connect, sock_read=seconds)
            headers = {"Accept": accept, "User-Agent": f"pyistiod/{build_info().version}"}
            if access.authorization:
                headers["Authorization"] = access.authorization
            if body is not None:
                headers["Content-Type"] = content_type
            try:
                async with asyncio.timeout(self.timeouts.connect + self.timeouts.response):  # until the headers arrive
                    response = await self._open_session().request(
                        method,
                        access.server + path,
                        params=query,
                        data=body,
                        headers=headers,
                        timeout=timeout,
                        proxy=access.proxy or None,
                        allow_redirects=False,  # they would send the credentials to other servers
                        **self._tls(access),
                    )
            except (aiohttp.ClientError, OSError, TimeoutError):
                self._reachable.clear()
                raise
            self._reachable.set()
            async with response:
                if response.status == 401 and attempt == 1:
                    self._access = None
                    continue
                if response.status >= 300:
                    content = await _read_body(response, _LARGEST_ERROR)
                    raise error_from_response(response.status, content, response.headers.get("Retry-After", ""))
                yield response
                return

    async def _current_access(self) -> Access:
        now = asyncio.get_running_loop().time()
        if self._access is None or now - self._loaded_at > self._credentials.ttl:
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
        return {"ssl": context, **({"server_hostname": access.tls.server_name} if access.tls.server_name else {})}

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, socket_factory=_create_socket)
            self._session = aiohttp.ClientSession(
                connector=connector,
                skip_auto_headers=("Accept-Encoding",),
                auto_decompress=False,  # responses that are compressed nevertheless may be large
                read_bufsize=1 << 18,
            )
        return self._session


async def _read_body(response: aiohttp.ClientResponse, largest: int) -> bytes:
    """Return the body of a response. The result is truncated at some point after `largest` bytes."""
    content = bytearray()
    async for data in response.content.iter_any():
        content += data
        if len(content) > largest:
            break
    return bytes(content)


@contextlib.contextmanager
def _network_errors(path: str) -> Any:
    """Return a context manager that converts network errors to Unreachable."""
    try:
        yield
    except KubeError:
        raise
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        _drop_tracebacks(error)
        raise _unreachable(path, error) from error


def _unreachable(path: str, error: Exception) -> Unreachable:
    """Return the error that tells users of a network error."""
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        else:
            reason = _reason(error.os_error)
        return Unreachable(f"cannot connect to the API server {error.host}:{error.port}: {reason}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Unreachable(f"{path}: the server closed the connection without a response")
    if isinstance(error, aiohttp.ClientResponseError):
        return Unreachable(f"{path}: the response is not HTTP/1.1, so it may be from another kind of server")
    return Unreachable(f"{path}: {_reason(error)}")


def _drop_tracebacks(error: BaseException | None) -> None:
    """Remove the tracebacks of an error and its causes.

    A response keeps the error that has ended it, and the traceback keeps the response. A watch has lived too long for
    the collector to free both.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _reason(error: Exception) -> str:
    """Return the cause of a network error for users."""
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed ({error.reason or error.strerror})"
    if isinstance(error, socket.gaierror):
        return "the host name is unknown"
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)  # asyncio repeats the address in its own text
    return str(error) or type(error).__name__


def _create_socket(address: Any) -> socket.socket:
    """Return a socket with TCP keepalive."""
    family, kind, protocol, _, _ = address
    tcp = socket.socket(family, kind, protocol)
    tcp.setblocking(False)
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        tcp.setsockopt(socket.IPPROTO_TCP, option, value)
    return tcp
