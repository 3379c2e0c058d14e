"""The aggregated discovery service (ADS) over gRPC. One server supports both protocol variants.

https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#aggregated-discovery-service
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import grpc
import msgspec
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from grpc import aio

from pilot.lib.logging.log import scope
from pilot.lib.metrics.call_metrics import go_name
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.text import cut, one_line
from pilot.lib.xds_types import HEALTH, SECRET, find_type, is_debug_request, is_object, short_name
from pilot.mesh.model.proxy import NodeError, NodeType, Proxy
from pilot.xds.admission import (
    DEFAULT_STREAM_LIMITS,
    Admission,
    CheckObjectAccess,
    StreamLimits,
    deny_objects,
)
from pilot.xds.authn.identity import (
    Authenticate,
    Authorize,
    Caller,
    CallerGone,
    IdentifyPeer,
    IdentityError,
    TooManyCallers,
    no_authentication,
    plaintext_caller,
    verified_identity,
)
from pilot.xds.caller_budgets import CallerBudgets, CallerStream, OverBudget, caller_key
from pilot.xds.debug_requests import (
    AnswerDebugRequest,
    DebugRequestError,
    encode_answer,
    no_debug_answer,
    requested_names,
)
from pilot.xds.nack_recorder import NackLog, NoNackLog
from pilot.xds.node import parse_node
from pilot.xds.push.connection import Connection, event_fields
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.message_cache import random_uuid
from pilot.xds.push.pusher import Pusher
from pilot.xds.session.delta import DeltaSession
from pilot.xds.session.session import Session, do_nothing
from pilot.xds.session.sotw import SotwSession
from pilot.xds.workload_registration import NoRegistration, RegistrationError, WorkloadRegistration

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
EOF: Any = aio.EOF  # type: ignore[attr-defined]
FIRST_REQUEST_TIMEOUT = 10.0
"""Maximum number of seconds until the first request of a stream has arrived. Proxies send it immediately."""
LAST_WRITE_TIMEOUT = 1.0
"""Maximum number of seconds that a stream waits for its current write before it ends."""
MAX_STATUS_LENGTH = 500
LARGE_REQUEST = 256 << 10
"""Size in bytes above which the effect of a request is checked in a separate iteration of the event loop."""
REQUEST = {"proxyrequest": 1}
_log, _delta_log = scope("ads"), scope("delta")


class _Stream(NamedTuple):
    """The gRPC call of a stream, the function that parses its requests, and its caller's address, verified identities
    and budget."""

    context: Any
    parse: Callable[[bytes], Any]
    address: str
    identities: Sequence[str]
    share: CallerStream


class _StreamError(Exception):
    """Ends a stream with a gRPC status and a message."""

    def __init__(self, status: grpc.StatusCode, text: str) -> None:
        super().__init__(status, text)


@dataclasses.dataclass(frozen=True)
class AdsOptions:
    """Options for the ADS service on one port.

    admission: Limits the rate of new streams.
    aliases: Cluster names, keyed by alias.
    limits: Limits for each stream.
    identify_peer: Returns the caller of a gRPC call.
    authenticate: Verifies a caller and returns its identities.
    authorize: Returns the identity that matches the proxy.
    answer_debug_request: Answers requests for debug pages.
    check_object_access: Checks access to configuration objects.
    registration: Registers workloads outside Kubernetes.
    nack_log: Handles NACKs and ACKs.
    request_listeners: Functions that are called after each request, keyed by type URL.
    budgets: Limits for all streams of a caller.
    """

    admission: Admission = dataclasses.field(default_factory=lambda: Admission(0.0))
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    limits: StreamLimits = DEFAULT_STREAM_LIMITS
    identify_peer: IdentifyPeer = plaintext_caller
    authenticate: Authenticate = no_authentication
    authorize: Authorize = verified_identity
    answer_debug_request: AnswerDebugRequest = no_debug_answer
    check_object_access: CheckObjectAccess = deny_objects
    registration: WorkloadRegistration = dataclasses.field(default_factory=NoRegistration)
    nack_log: NackLog = dataclasses.field(default_factory=NoNackLog)
    request_listeners: dict[str, Callable[[Connection], None]] = dataclasses.field(default_factory=dict)
    budgets: CallerBudgets = dataclasses.field(default_factory=CallerBudgets)


class Ads:
    """The ADS service of one port. `connections` are its open streams.

    Each stream has one task that reads and one that writes.
    """

    def __init__(
        self, discovery: Discovery, pusher: Pusher, metrics: Metrics, options: AdsOptions | None = None
    ) -> None:
        self._discovery, self._pusher, self._metrics = discovery, pusher, metrics
        self.options = options or AdsOptions()
        self.connections: dict[Connection, None] = {}

    def handlers(self) -> Any:
        """Return the argument for `grpc.aio.Server.add_generic_rpc_handlers`.

        The handlers have no serializers, so messages are bytes.
        """
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

    # -- start of a stream ---------------------------------------------------------------------------------------------

    async def _stream(self, context: Any, parse: Callable[[bytes], Any], session: Session) -> None:
        caller = await self._identify_peer(context)
        if not await self.options.admission.admit(caller.host):
            _log.warning("ADS: %s exceeded rate limit", caller.address)
            await self._reject(context, "admission", "request rate limit exceeded")
        identities = await self._authenticate(context, caller)
        try:
            with self.options.budgets.stream(caller_key(identities, caller.host)) as share:
                await self._start(_Stream(context, parse, caller.address, identities, share), session)
        except OverBudget as error:
            limit, text = error.args
            _log.warning("ADS: rejected %s: %s", caller.address, text)
            await self._reject(context, limit, text)

    async def _start(self, stream: _Stream, session: Session) -> None:
        """Read the first request of a stream, register its proxy, and serve it."""
        context, address = stream.context, stream.address
        request = await self._read_first(stream)
        if request is None:
            return
        try:
            proxy = parse_node(request.node, self.options.aliases)
        except NodeError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, cut(one_line(str(error)), MAX_STATUS_LENGTH))
        if proxy.type is NodeType.ZTUNNEL and not self._discovery.db.settings.ambient.enabled:
            await context.abort(grpc.StatusCode.UNKNOWN, "ambient mode, which ztunnel requires, is disabled")
        try:
            proxy = msgspec.structs.replace(proxy, identity=self.options.authorize(stream.identities, proxy))
        except IdentityError as error:
            _log.warning("ADS: rejected %s: %s", address, cut(one_line(str(error)), MAX_STATUS_LENGTH))
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "authorization failed")
        await self._register(context, proxy, address)
        try:
            connection = self._discovery.connect(request.node.id, proxy, address, session)
            self.connections[connection] = None
            is_delta = isinstance(request, discovery_pb2.DeltaDiscoveryRequest)
            (_delta_log if is_delta else _log).info(
                "ADS: new %sconnection for node:%s", "delta " if is_delta else "", connection.id
            )
            try:
                await self._serve(stream, connection, request)
            finally:
                del self.connections[connection]
                self._remove(connection)
        finally:
            self.options.registration.unregister(proxy)

    async def _reject(self, context: Any, limit: str, text: str) -> None:
        """End a stream because its caller exceeds a limit."""
        self._metrics.caller_limit_exceeded(limit)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    def _remove(self, connection: Connection) -> None:
        """Remove a stream that has ended. Bugs are logged here, because nothing else would report them."""
        try:
            self._discovery.remove(connection)
        except Exception:
            self._metrics.internal_error()
            _log.error('ADS: cannot remove "%s" %s', connection.address, connection.id, exc_info=True)
        else:
            _log.info('ADS: "%s" %s terminated', connection.address, connection.id)

    async def _register(self, context: Any, proxy: Proxy, address: str) -> None:
        """Register the proxy's workload. If this fails, end the stream."""
        try:
            await self.options.registration.register(proxy)
        except RegistrationError as error:
            text = cut(one_line(str(error)), MAX_STATUS_LENGTH)
            _log.warning("ADS: rejected %s: %s", address, text)
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION if error.not_found else grpc.StatusCode.UNKNOWN, text
            )

    async def _identify_peer(self, context: Any) -> Caller:
        try:
            return self.options.identify_peer(context)
        except CallerGone:
            await context.abort(grpc.StatusCode.CANCELLED, "disconnected")
            raise
        except IdentityError as error:
            _log.warning("ADS: rejected %s: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
            raise

    async def _authenticate(self, context: Any, caller: Caller) -> Sequence[str]:
        try:
            return await self.options.authenticate(caller)
        except IdentityError as error:
            _log.warning("ADS: rejected %s: %s", caller.address, cut(one_line(str(error)), MAX_STATUS_LENGTH))
            if isinstance(error, TooManyCallers):
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many callers")
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
            raise

    async def _read_first(self, stream: _Stream) -> Any:
        """Return the first request, which must have a node. Return None if the stream ends before it arrives."""
        context = stream.context
        try:
            async with asyncio.timeout(FIRST_REQUEST_TIMEOUT):
                request = await self._read_answerable(stream)
        except TimeoutError:
            self._metrics.caller_limit_exceeded("first_request")
            _log.warning("ADS: %s sent no request within %.0f s", stream.address, FIRST_REQUEST_TIMEOUT)
            text = f"no request has arrived within {FIRST_REQUEST_TIMEOUT:.0f} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        except _StreamError as error:
            await context.abort(*error.args)
        if request is None:
            return None
        if not request.node.id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "missing node information")
        if excess := self.options.limits.check_node(request.node):
            _log.warning("ADS: rejected %s: %s", stream.address, excess)
            await self._reject(context, "stream_size", excess)
        stream.share.hold_node(request.node.ByteSize())
        return request

    async def _read_answerable(self, stream: _Stream) -> Any:
        """Return the first request that is not a report, or None at the end of the stream."""
        while (raw := await stream.context.read()) is not EOF:
            request = self._parse(stream.parse, raw)
            if find_type(request.type_url).is_answered:
                return request
            _log.warning("ADS: %s sent a report before its first request", stream.address)
        return None

    # -- an open stream ------------------------------------------------------------------------------------------------

    async def _serve(self, stream: _Stream, connection: Connection, request: Any) -> None:
        """Read requests until the peer, `connection.end` or an error ends the stream. Meanwhile, the pusher writes
        responses.

        gRPC does not accept a status during a write. The status of a rejected stream is therefore sent after the
        current write.
        """
        reader, context = asyncio.current_task(), stream.context
        assert reader is not None
        error: BaseException | None = None
        status: tuple[Any, ...] = ()
        ending = _StreamEnd(reader, asyncio.create_task(self._pusher.serve(connection, context.write)))
        del reader
        connection.end, connection.abort = ending.end, ending.abort
        try:
            try:
                await self._read(stream, connection, request)
            except _StreamError as rejection:
                status, ending.is_requested = rejection.args, True
            except asyncio.CancelledError:
                if not ending.is_requested:
                    raise
            except Exception as failure:
                status, ending.is_requested = self._handle_failure(connection, failure), True
            ending.is_reading = False
            connection.finish()
            if not await ending.wait_for_writer():  # no status can be sent after an unfinished write
                self._pusher.tcp_connections.reset_soon(connection.address)
                raise asyncio.CancelledError
            error = ending.writer.exception()
            # An InternalError means that the peer has disconnected.
            if error is not None and not (context.cancelled() or isinstance(error, aio.InternalError)):
                status = self._handle_failure(connection, error)
            if status:
                await context.abort(*status)
        finally:
            # Break reference cycles. Otherwise tasks, and the unsent data of the call, wait for the garbage collector.
            ending.writer.cancel()  # the call may be cancelled while it waits for the writer
            connection.end = connection.abort = do_nothing
            del ending, error

    def _handle_failure(self, connection: Connection, error: BaseException) -> tuple[grpc.StatusCode, str]:
        """Log a bug in this process or in a library, and return the status with which the stream ends."""
        self._metrics.internal_error()
        _log.error("ADS: %s %s terminated with error", connection.address, connection.id, exc_info=error)
        return grpc.StatusCode.INTERNAL, "internal error"

    async def _read(self, stream: _Stream, connection: Connection, request: Any) -> None:
        size = 0
        while True:
            if is_debug_request(request.type_url):
                await self._answer_debug_request(connection, request)
            else:
                if is_object(request.type_url):
                    self._check_object_access(connection, request.type_url)
                self._receive(connection, request)
            if size > LARGE_REQUEST:
                await asyncio.sleep(0)
            self._check_limits(stream.share, connection)
            if (raw := await stream.context.read()) is EOF:
                return
            request, size = self._parse(stream.parse, raw), len(raw)

    def _check_limits(self, share: CallerStream, connection: Connection) -> None:
        """End the stream if its subscriptions, or those of all streams of its caller, exceed a limit."""
        limit, excess = "stream_size", self.options.limits.check_subscriptions(connection.session)
        if not excess:
            try:
                share.hold_names(connection.session)
            except OverBudget as error:
                limit, excess = error.args
            else:
                return
        self._metrics.caller_limit_exceeded(limit)
        _log.warning("ADS: closing %s: %s", connection.id, excess)
        connection.session.subscriptions.clear()
        raise _StreamError(grpc.StatusCode.RESOURCE_EXHAUSTED, excess)

    def _check_object_access(self, connection: Connection, type_url: str) -> None:
        """End the stream if the client may not request configuration objects."""
        try:
            self.options.check_object_access(connection.proxy.identity)
        except DebugRequestError as error:
            _log.warning("ADS: denied %s to %s: %s", type_url, connection.id, error)
            raise _StreamError(*error.args) from error

    async def _answer_debug_request(self, connection: Connection, request: Any) -> None:
        """Answer a debug request, unless it is the acknowledgement of an earlier answer. Return after the answer has
        been written, so that a stream never has more than one unwritten answer.

        A nonce alone does not make the request an acknowledgement, because istioctl includes one in its first request.
        """
        if request.response_nonce in connection.answer_nonces or request.HasField("error_detail"):
            return
        try:
            async with self.options.answer_debug_request(
                request.type_url, requested_names(request), connection.proxy.identity
            ) as answer:
                version = self._discovery.version
                nonce = version + random_uuid()
                connection.answer_nonces.append(nonce)
                data = await asyncio.to_thread(encode_answer, answer, request, version, nonce)
                await connection.send(data, REQUEST)
        except DebugRequestError as error:
            _log.warning("ADS: denied %s to %s: %s", request.type_url, connection.id, error)
            raise _StreamError(*error.args) from error

    def _receive(self, connection: Connection, request: Any) -> None:
        if not find_type(request.type_url).is_answered:
            if request.type_url == HEALTH:
                self.options.registration.report_health(
                    connection.proxy, not request.HasField("error_detail"), request.error_detail.message
                )
            return
        acknowledgement = connection.session.receive(request)
        connection.mark_active()
        error = acknowledgement.rejected[1] if acknowledgement.rejected is not None else None
        connection.deliveries.on_response(request.type_url, request.response_nonce, error)
        if request.type_url not in connection.session.subscriptions:
            connection.deliveries.drop_type(request.type_url)
        if (listener := self.options.request_listeners.get(request.type_url)) is not None:
            listener(connection)
        if request.type_url == SECRET:
            self._pusher.secret_report.on_request(connection)
        if acknowledgement.rejected is not None:
            code, message = acknowledgement.rejected
            self._metrics.rejected(request.type_url, connection.proxy.id, code)
            self.options.nack_log.on_nack(connection, request.type_url, message)
            _log.warning(
                "ADS:%s: ACK ERROR %s %s:%s",
                short_name(request.type_url).upper(),
                connection.id,
                go_name(code),
                message,
                extra=event_fields(connection),
            )
        elif acknowledgement.acknowledged:
            connection.mark_acked(request.type_url)
            self.options.nack_log.on_ack(connection, request.type_url)
        elif acknowledgement.stale:
            self._metrics.expired_nonce(request.type_url)
        self._discovery.count_response(connection)
        if connection.session.should_release:
            self._pusher.release_soon(connection)
        if connection.session.owes_anything():
            connection.mark_dirty(time.monotonic(), REQUEST)
        else:
            self._discovery.close_unused(connection, request.type_url)

    def _parse(self, parse: Callable[[bytes], Any], raw: bytes) -> Any:
        self._metrics.received(len(raw))
        try:
            return parse(raw)
        except DecodeError as error:
            raise _StreamError(grpc.StatusCode.INVALID_ARGUMENT, "malformed request") from error


class _StreamEnd:
    """Ends a stream by cancelling the task that reads it, either on request or because the writer failed."""

    def __init__(self, reader: asyncio.Task[Any], writer: asyncio.Task[None]) -> None:
        self.is_requested, self.is_reading = False, True
        self.writer = writer
        self._reader = reader
        writer.add_done_callback(self._on_writer_done)

    def end(self) -> None:
        if self.is_reading and not self.is_requested:
            self.is_requested = True
            self._reader.cancel()

    def abort(self) -> None:
        """End the stream without waiting for the current write."""
        self.writer.cancel()
        self.end()

    async def wait_for_writer(self) -> bool:
        """Wait for the current write. Return False if it does not finish in time or was cancelled."""
        await asyncio.wait((self.writer,), timeout=LAST_WRITE_TIMEOUT if self.is_requested else None)
        if self.writer.done():
            return not self.writer.cancelled()
        self.writer.cancel()
        return False

    def _on_writer_done(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and writer.exception() is not None:
            self.end()
