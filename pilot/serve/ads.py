"""The aggregated discovery service over gRPC: both protocol variants on one server, bytes in and out.

https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#aggregated-discovery-service
"""
from __future__ import annotations

import asyncio
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from grpc import aio

from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.lib.text import cut, one_line
from pilot.lib.xds_types import find_type
from pilot.model.proxy import NodeError, NodeType
from pilot.serve.admission import Admission
from pilot.serve.connection import Connection, nothing
from pilot.serve.delta import DeltaSession
from pilot.serve.discovery import Discovery
from pilot.serve.node import parse_node
from pilot.serve.pusher import Pusher
from pilot.serve.session import Session
from pilot.serve.sotw import SotwSession
from pilot.serve.stream_limits import DEFAULT_STREAM_LIMITS, StreamLimits
from pilot.settings.declaration import FOREVER
from pilot.settings.process import ServeSettings

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
EOF: Any = aio.EOF  # type: ignore[attr-defined]
LAST_WRITE_SECONDS = 1.0
STATUS_LENGTH = 500
REQUEST = {"proxyrequest": 1}
_log = scope("ads")


class Ads:
    """The handlers of the service. A stream is one task that reads and one that writes."""

    def __init__(
        self,
        discovery: Discovery,
        pusher: Pusher,
        metrics: Metrics,
        admission: Admission,
        aliases: Mapping[str, str],
        limits: StreamLimits = DEFAULT_STREAM_LIMITS,
    ) -> None:
        self._limits = limits
        self._discovery, self._pusher, self._metrics, self._admission, self._aliases = discovery, pusher, metrics, admission, aliases

    def handlers(self) -> Any:
        """For `grpc.aio.Server.add_generic_rpc_handlers`. Without serializers: what comes and goes is bytes."""
        methods = {
            "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(self._sotw),
            "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(self._delta),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _sotw(self, _: Any, context: Any) -> None:
        await self._stream(context, discovery_pb2.DiscoveryRequest.FromString, SotwSession(self._discovery.name_sets))

    async def _delta(self, _: Any, context: Any) -> None:
        await self._stream(context, discovery_pb2.DeltaDiscoveryRequest.FromString, DeltaSession(self._discovery.name_sets))

    async def _stream(self, context: Any, parse: Callable[[bytes], Any], session: Session) -> None:
        address = peer_address(context.peer())
        if not await self._admission.admit():
            _log.warning("ADS: %s exceeded rate limit", address)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit exceeded")
        request = await self._first(context, parse, address)
        if request is None:
            return
        try:
            proxy = parse_node(request.node, self._aliases)
        except NodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, cut(one_line(str(error)), STATUS_LENGTH))
        if proxy.type is NodeType.ZTUNNEL:
            await context.abort(grpc.StatusCode.UNKNOWN, "ztunnel is served in ambient mode only, which is off")
        connection = self._discovery.connect(request.node.id, proxy, address, session)
        _log.info("ADS: new connection for node:%s", connection.id)
        try:
            await self._serve(context, parse, connection, request)
        finally:
            self._discovery.closed(connection)
            _log.info("ADS: %s %s terminated", address, connection.id)

    async def _first(self, context: Any, parse: Callable[[bytes], Any], address: str) -> Any:
        """The first request, which must say who asks; None where the stream ends before."""
        while (raw := await context.read()) is not EOF:
            request = await self._parsed(context, parse, raw)
            if not find_type(request.type_url).is_answered:
                _log.warning("ADS: %s sent a report before its first request", address)
                continue
            if not request.node.id:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "missing node information")
            if excess := self._limits.node_excess(request.node):
                _log.warning("ADS: %s is refused: %s", address, excess)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, excess)
            return request
        return None

    async def _serve(self, context: Any, parse: Callable[[bytes], Any], connection: Connection, request: Any) -> None:
        """Read until the peer or `connection.end` ends the stream, while the pusher writes."""
        reader = asyncio.current_task()
        assert reader is not None
        error: BaseException | None = None
        ending = _Ending(reader, asyncio.create_task(self._pusher.serve(connection, context.write)))
        del reader
        connection.end, connection.abort = ending.end, ending.abort
        try:
            try:
                await self._read(context, parse, connection, request)
            except asyncio.CancelledError:
                if not ending.asked:
                    ending.writer.cancel()
                    raise
            ending.reading = False
            connection.finish()
            if not await ending.wait():  # no status can be sent behind what is being written
                self._pusher.sockets.reset_soon(connection.address)
                raise asyncio.CancelledError
            error = ending.writer.exception()
            if error is not None and not (context.cancelled() or isinstance(error, aio.InternalError)):  # else the peer has gone
                await self._failed(context, connection, error)
        finally:  # tasks, frames and the call would hold each other until garbage is collected, and the call what it has not sent
            connection.end = connection.abort = nothing
            del ending, error

    async def _failed(self, context: Any, connection: Connection, error: BaseException) -> None:
        """A bug of ours, or of what we stand on, ends one stream."""
        self._metrics.internal_error()
        _log.error("ADS: %s %s terminated with error", connection.address, connection.id, exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, "internal error")

    async def _read(self, context: Any, parse: Callable[[bytes], Any], connection: Connection, request: Any) -> None:
        while True:
            self._receive(connection, request)
            if excess := self._limits.excess(connection.session):
                _log.warning("ADS: %s is ended: %s", connection.id, excess)
                connection.session.subscriptions.clear()
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, excess)
            if (raw := await context.read()) is EOF:
                return
            request = await self._parsed(context, parse, raw)

    def _receive(self, connection: Connection, request: Any) -> None:
        if not find_type(request.type_url).is_answered:
            return
        received = connection.session.receive(request)
        if received.rejected is not None:
            code, message = received.rejected
            self._metrics.rejected(request.type_url, connection.proxy.id, code)
            _log.warning("ADS: %s rejected %s: %s", connection.id, request.type_url, message)
        elif received.stale:
            self._metrics.expired_nonce(request.type_url)
        if connection.session.is_due:
            self._pusher.release_soon(connection)
        if connection.session.owes():
            connection.mark(time.monotonic(), REQUEST)
        else:
            self._discovery.let_go(connection, request.type_url)

    async def _parsed(self, context: Any, parse: Callable[[bytes], Any], raw: bytes) -> Any:
        self._metrics.received(len(raw))
        try:
            return parse(raw)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed request")


class _Ending:
    """Ends the reading of a stream from outside of its task: on request, or because the writer failed."""

    def __init__(self, reader: asyncio.Task[Any], writer: asyncio.Task[None]) -> None:
        self.asked, self.reading = False, True
        self.writer = writer
        self._reader = reader
        writer.add_done_callback(self._written)

    def end(self) -> None:
        if self.reading and not self.asked:
            self.asked = True
            self._reader.cancel()

    def abort(self) -> None:
        """End without waiting for what is being written."""
        self.writer.cancel()
        self.end()

    async def wait(self) -> bool:
        """Let the writer end; False if it does not, or was told not to."""
        await asyncio.wait((self.writer,), timeout=LAST_WRITE_SECONDS if self.asked else None)
        if self.writer.done():
            return not self.writer.cancelled()
        self.writer.cancel()
        return False

    def _written(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and writer.exception() is not None:
            self.end()


def peer_address(peer: str) -> str:
    """host:port of a gRPC peer such as ipv4:10.0.0.1:5000."""
    return urllib.parse.unquote(peer.removeprefix("ipv4:").removeprefix("ipv6:"))


def make_server(settings: ServeSettings, handlers: Any) -> aio.Server:
    """A gRPC server that is not started yet, with keepalive, limits and connection age of the settings."""
    options = [
        ("grpc.so_reuseport", 0),  # a port that is in use is an error
        ("grpc.max_concurrent_streams", settings.max_streams),
        # New streams wait for the event loop; beyond 1,000 gRPC would end some of them at random, CANCELLED and without a word
        ("grpc.server.max_pending_requests", settings.max_streams),
        ("grpc.server.max_pending_requests_hard_limit", settings.max_streams),
        ("grpc.max_receive_message_length", settings.max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", _milliseconds(settings.keepalive_interval)),
        ("grpc.keepalive_timeout_ms", _milliseconds(settings.keepalive_timeout)),
        ("grpc.http2.ping_timeout_ms", _milliseconds(settings.keepalive_timeout)),  # it decides; a minute where it is not set
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(settings.keepalive_interval) // 2),
    ]
    if settings.max_connection_age < FOREVER:
        options += [("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age)), ("grpc.max_connection_age_grace_ms", 10_000)]
    made = aio.server(options=options)
    made.add_generic_rpc_handlers((handlers,))
    return made


def _milliseconds(duration: int) -> int:
    return min(max(duration // 1_000_000, 1), 2**31 - 1)
