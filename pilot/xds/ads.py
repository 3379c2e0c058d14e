"""The aggregated discovery service is served over gRPC: both protocol variants on one server, bytes in and out.

https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#aggregated-discovery-service
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import msgspec
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from grpc import aio

from pilot.lib.call_metrics import go_name
from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.lib.text import cut, one_line
from pilot.lib.xds_types import HEALTH, SECRET, find_type, is_object, is_question, short_name
from pilot.mesh.model.proxy import NodeError, NodeType, Proxy
from pilot.xds.admission import Admission
from pilot.xds.connection import Connection, nothing, of_events
from pilot.xds.delta import DeltaSession
from pilot.xds.discovery import Discovery
from pilot.xds.identity import (
    Authenticate,
    Authorize,
    Caller,
    IdentityError,
    Meet,
    nobody,
    plain_caller,
    verified_identity,
)
from pilot.xds.lifecycle import RegistrationError
from pilot.xds.messages import random_uuid
from pilot.xds.node import parse_node
from pilot.xds.object_access import CheckObjectAccess, nobody_may
from pilot.xds.pusher import Pusher
from pilot.xds.questions import Ask, QuestionError, encode_answer, names_asked, no_answer
from pilot.xds.session import Session
from pilot.xds.sotw import SotwSession
from pilot.xds.subscription_limits import DEFAULT_STREAM_LIMITS, StreamLimits

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
EOF: Any = aio.EOF  # type: ignore[attr-defined]
LAST_WRITE_SECONDS = 1.0
STATUS_LENGTH = 500
REQUEST = {"proxyrequest": 1}
_log, _delta = scope("ads"), scope("delta")


class _Refused(Exception):
    """Says with which status and text a stream ends because of what it sent."""

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        super().__init__(status, text)


class Ads:
    """The service of one port. A stream is one task that reads and one that writes.

    `meet` says from where a call comes, `authenticate` who makes it, and
    `authorize` which of the identities may be the proxy. `ask` answers questions, `check_object_access` says who may ask for configuration
    objects. `connections` are those of this port.
    """

    def __init__(
        self,
        discovery: Discovery,
        pusher: Pusher,
        metrics: Metrics,
        admission: Admission,
        aliases: Mapping[str, str],
        limits: StreamLimits = DEFAULT_STREAM_LIMITS,
        authenticate: Authenticate = nobody,
        meet: Meet = plain_caller,
        authorize: Authorize = verified_identity,
        ask: Ask = no_answer,
        check_object_access: CheckObjectAccess = nobody_may,
    ) -> None:
        self._ask, self._check_object_access = ask, check_object_access
        self._limits, self._authenticate, self._meet, self._authorize = limits, authenticate, meet, authorize
        self.connections: dict[Connection, None] = {}
        self._discovery, self._pusher, self._metrics, self._admission, self._aliases = (
            discovery,
            pusher,
            metrics,
            admission,
            aliases,
        )

    def handlers(self) -> Any:
        """Returns what `grpc.aio.Server.add_generic_rpc_handlers` takes. There are no serializers: bytes come and go."""
        methods = {
            "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(self._sotw),
            "DeltaAggregatedResources": grpc.stream_stream_rpc_method_handler(self._delta),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _sotw(self, _: Any, context: Any) -> None:
        await self._stream(context, discovery_pb2.DiscoveryRequest.FromString, SotwSession(self._discovery.name_sets))

    async def _delta(self, _: Any, context: Any) -> None:
        await self._stream(
            context, discovery_pb2.DeltaDiscoveryRequest.FromString, DeltaSession(self._discovery.name_sets)
        )

    async def _stream(self, context: Any, parse: Callable[[bytes], Any], session: Session) -> None:
        caller = await self._met(context)
        address = caller.address
        if not await self._admission.admit():
            _log.warning("ADS: %s exceeded rate limit", address)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit exceeded")
        identities = await self._identities(context, caller)
        request = await self._first(context, parse, address)
        if request is None:
            return
        try:
            proxy = parse_node(request.node, self._aliases)
        except NodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, cut(one_line(str(error)), STATUS_LENGTH))
        if proxy.type is NodeType.ZTUNNEL and not self._discovery.db.settings.ambient.enabled:
            await context.abort(grpc.StatusCode.UNKNOWN, "ztunnel is served in ambient mode only, which is off")
        try:
            proxy = msgspec.structs.replace(proxy, identity=self._authorize(identities, proxy))
        except IdentityError as error:
            _log.warning("ADS: %s is refused: %s", address, cut(one_line(str(error)), STATUS_LENGTH))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "authorization failed")
        await self._register(context, proxy, address)
        try:
            connection = self._discovery.connect(request.node.id, proxy, address, session)
            self.connections[connection] = None
            is_delta = isinstance(request, discovery_pb2.DeltaDiscoveryRequest)
            (_delta if is_delta else _log).info(
                "ADS: new %sconnection for node:%s", "delta " if is_delta else "", connection.id
            )
            try:
                await self._serve(context, parse, connection, request)
            finally:
                del self.connections[connection]
                self._close(connection)
        finally:
            self._discovery.lifecycle.closed(proxy)

    def _close(self, connection: Connection) -> None:
        """Forgets a stream that has ended. Nobody else would tell of a bug of ours there."""
        try:
            self._discovery.closed(connection)
        except Exception:
            self._metrics.internal_error()
            _log.error('ADS: "%s" %s cannot be forgotten', connection.address, connection.id, exc_info=True)
        else:
            _log.info('ADS: "%s" %s terminated', connection.address, connection.id)

    async def _register(self, context: Any, proxy: Proxy, address: str) -> None:
        """Returns when what follows from the stream has been done; ends it where that cannot be."""
        try:
            await self._discovery.lifecycle.connected(proxy)
        except RegistrationError as error:
            text = cut(one_line(str(error)), STATUS_LENGTH)
            _log.warning("ADS: %s is refused: %s", address, text)
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION if error.misplaced else grpc.StatusCode.UNKNOWN, text
            )

    async def _met(self, context: Any) -> Caller:
        try:
            return self._meet(context)
        except IdentityError as error:
            _log.warning("ADS: %s is refused: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
            raise

    async def _identities(self, context: Any, caller: Caller) -> Sequence[str]:
        try:
            return await self._authenticate(caller)
        except IdentityError as error:
            _log.warning("ADS: %s is refused: %s", caller.address, cut(one_line(str(error)), STATUS_LENGTH))
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
            raise

    async def _first(self, context: Any, parse: Callable[[bytes], Any], address: str) -> Any:
        """Returns the first request, which must say who asks; None where the stream ends before."""
        while (raw := await context.read()) is not EOF:
            try:
                request = self._parsed(parse, raw)
            except _Refused as refused:
                await context.abort(*refused.args)
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
        """Reads until the peer, `connection.end` or what was read ends the stream, while the pusher writes.

        gRPC takes no status while a message is being written, so the status of a stream that is refused follows what is being written.
        """
        reader = asyncio.current_task()
        assert reader is not None
        error: BaseException | None = None
        status: tuple[Any, ...] = ()
        ending = _Ending(reader, asyncio.create_task(self._pusher.serve(connection, context.write)))
        del reader
        connection.end, connection.abort = ending.end, ending.abort
        try:
            try:
                await self._read(context, parse, connection, request)
            except _Refused as refused:
                status, ending.asked = refused.args, True
            except asyncio.CancelledError:
                if not ending.asked:
                    raise
            except Exception as failure:
                status, ending.asked = self._failed(connection, failure), True
            ending.reading = False
            connection.finish()
            if not await ending.wait():  # no status can be sent behind what is being written
                self._pusher.sockets.reset_soon(connection.address)
                raise asyncio.CancelledError
            error = ending.writer.exception()
            if error is not None and not (
                context.cancelled() or isinstance(error, aio.InternalError)
            ):  # else the peer has gone
                status = self._failed(connection, error)
            if status:
                await context.abort(*status)
        finally:  # tasks, frames and the call would hold each other until garbage is collected, and the call what it has not sent
            ending.writer.cancel()  # the call may be cancelled while its writer is waited for
            connection.end = connection.abort = nothing
            del ending, error

    def _failed(self, connection: Connection, error: BaseException) -> tuple[grpc.StatusCode, str]:
        """Returns with which status a bug of ours, or of what we stand on, ends one stream."""
        self._metrics.internal_error()
        _log.error("ADS: %s %s terminated with error", connection.address, connection.id, exc_info=error)
        return grpc.StatusCode.INTERNAL, "internal error"

    async def _read(self, context: Any, parse: Callable[[bytes], Any], connection: Connection, request: Any) -> None:
        while True:
            if is_question(request.type_url):
                await self._answer(connection, request)
            else:
                if is_object(request.type_url):
                    self._admit(connection, request.type_url)
                self._receive(connection, request)
            if excess := self._limits.excess(connection.session):
                _log.warning("ADS: %s is ended: %s", connection.id, excess)
                connection.session.subscriptions.clear()
                raise _Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, excess)
            if (raw := await context.read()) is EOF:
                return
            request = self._parsed(parse, raw)

    def _admit(self, connection: Connection, type_url: str) -> None:
        """Refuses the stream of somebody who may not have objects."""
        try:
            self._check_object_access(connection.proxy.identity)
        except QuestionError as error:
            _log.warning("ADS: %s is refused %s: %s", connection.id, type_url, error)
            raise _Refused(*error.args) from error

    async def _answer(self, connection: Connection, request: Any) -> None:
        """Answers a question; what only acknowledges an answer is none. istioctl makes a nonce of its own for its first request."""
        if request.response_nonce in connection.answered or request.HasField("error_detail"):
            return
        try:
            answer = await self._ask(request.type_url, names_asked(request), connection.proxy.identity)
        except QuestionError as error:
            _log.warning("ADS: %s is refused %s: %s", connection.id, request.type_url, error)
            raise _Refused(*error.args) from error
        version = self._discovery.version
        nonce = version + random_uuid()
        connection.answered.append(nonce)
        connection.said.append(await asyncio.to_thread(lambda: encode_answer(answer, request, version, nonce)))
        connection.mark(time.monotonic(), REQUEST)

    def _receive(self, connection: Connection, request: Any) -> None:
        if not find_type(request.type_url).is_answered:
            if request.type_url == HEALTH:
                self._discovery.lifecycle.reported(
                    connection.proxy, not request.HasField("error_detail"), request.error_detail.message
                )
            return
        received = connection.session.receive(request)
        connection.activity += 1
        self._discovery.asked(connection, request.type_url)
        if request.type_url == SECRET:
            self._pusher.secrets.asked(connection)
        if received.rejected is not None:
            code, message = received.rejected
            self._metrics.rejected(request.type_url, connection.proxy.id, code)
            self._discovery.refusals.refused(connection, request.type_url, message)
            told = short_name(request.type_url).upper(), connection.id, go_name(code), message
            _log.warning("ADS:%s: ACK ERROR %s %s:%s", *told, extra=of_events(connection))
        elif received.acknowledged:
            connection.took(request.type_url)
            self._discovery.refusals.taken(connection, request.type_url)
        elif received.stale:
            self._metrics.expired_nonce(request.type_url)
        self._discovery.answered(connection)
        if connection.session.is_due:
            self._pusher.release_soon(connection)
        if connection.session.owes():
            connection.mark(time.monotonic(), REQUEST)
        else:
            self._discovery.let_go(connection, request.type_url)

    def _parsed(self, parse: Callable[[bytes], Any], raw: bytes) -> Any:
        self._metrics.received(len(raw))
        try:
            return parse(raw)
        except DecodeError as error:
            raise _Refused(grpc.StatusCode.INVALID_ARGUMENT, "malformed request") from error


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
        """Ends without waiting for what is being written."""
        self.writer.cancel()
        self.end()

    async def wait(self) -> bool:
        """Lets the writer end; returns False if it does not, or was told not to."""
        await asyncio.wait((self.writer,), timeout=LAST_WRITE_SECONDS if self.asked else None)
        if self.writer.done():
            return not self.writer.cancelled()
        self.writer.cancel()
        return False

    def _written(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and writer.exception() is not None:
            self.end()
