"""The ADS proxy: forwards Envoy's streams on a Unix socket to the control plane over TLS.

Messages are forwarded as bytes. Each of Envoy's streams corresponds to one stream to the control plane. When either
stream ends, the other one is ended too. Envoy then opens a new stream and sends its complete state.

The control plane's side runs in threads, because the asyncio API of gRPC does not report why a call ended while a
message was being written.
"""

from __future__ import annotations

import asyncio
import queue
from concurrent import futures
from typing import Any, Protocol

import grpc

from pilot.agent.unix_sockets import EOF
from pilot.agent.upstream_server import UpstreamConfigError, UpstreamServer
from pilot.agent.wasm.extension_stream import ExtensionStream, Rewriter
from pilot.agent.xds.agent_subscriptions import AgentSubscriptions
from pilot.agent.xds.downstream_writer import DownstreamWriter
from pilot.lib.logging.log import scope

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SOTW, DELTA = "StreamAggregatedResources", "DeltaAggregatedResources"
RETRY_DELAYS = (10.0, 300.0)
"""Minimum and maximum delay in seconds before a failed fetch of a Wasm module is retried."""
_log = scope("xdsproxy")


class XdsObserver(Protocol):
    """Receives the events that metrics count."""

    def request_forwarded(self) -> None: ...
    def response_received(self) -> None: ...
    def upstream_connection_failed(self) -> None: ...
    def upstream_closed(self, cause: str) -> None: ...
    def envoy_closed(self, cause: str) -> None: ...


class XdsProxy:
    """The gRPC service of the proxy.

    `subscriptions` are the agent's own. Their responses never reach Envoy. `rewriter` rewrites extension configurations
    in a thread.
    """

    def __init__(
        self,
        upstream: UpstreamServer,
        subscriptions: AgentSubscriptions,
        observer: XdsObserver,
        rewriter: Rewriter | None = None,
        retry_delays: tuple[float, float] = RETRY_DELAYS,
    ) -> None:
        self._upstream, self._subscriptions, self._observer = upstream, subscriptions, observer
        self._rewriter, self._retry_delays = rewriter, retry_delays

    def handlers(self) -> Any:
        """Return the handler for `grpc.aio.Server.add_generic_rpc_handlers`."""
        methods = {name: grpc.stream_stream_rpc_method_handler(getattr(self, f"_{name}")) for name in (SOTW, DELTA)}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _StreamAggregatedResources(self, _: Any, context: Any) -> None:
        await self._proxy(SOTW, context)

    async def _DeltaAggregatedResources(self, _: Any, context: Any) -> None:
        await self._proxy(DELTA, context)

    async def _proxy(self, method: str, context: Any) -> None:
        try:
            channel, metadata = self._upstream.blocking_channel(), self._upstream.metadata()
        except (UpstreamConfigError, ValueError) as error:  # ValueError: invalid PEM in the file of roots
            self._observer.upstream_connection_failed()
            _log.warning("cannot connect to the control plane %s: %s", self._upstream.address, error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = channel.stream_stream(f"/{SERVICE}/{method}")(iter(requests.get, None), metadata=metadata)
        forwarder = asyncio.create_task(self._forward_requests(context, requests, method == DELTA))
        reader = futures.ThreadPoolExecutor(1, "xds")
        extensions = ExtensionStream(self._rewriter, method == DELTA) if self._rewriter is not None else None
        writer = DownstreamWriter(context, extensions, self._retry_delays)
        try:
            await self._forward_responses(call, writer, requests, reader, method == DELTA)
            await writer.finish()
        except grpc.RpcError:
            self._report_failure(call)
            await writer.finish()
            await context.abort(call.code(), call.details() or "")
        except asyncio.CancelledError:
            self._observer.envoy_closed("cancelled")
            raise
        finally:
            call.cancel()
            requests.put(None)
            forwarder.cancel()
            writer.close()
            reader.shutdown(wait=False)
            channel.close()
        self._observer.upstream_closed("closed")

    async def _forward_requests(self, context: Any, requests: queue.SimpleQueue[bytes | None], delta: bool) -> None:
        """Forward Envoy's requests. The agent's own requests are sent after the first one, which contains the node."""
        agent_requests = self._subscriptions.initial_requests(delta)
        while (raw := await context.read()) is not EOF:
            for request in (raw, *agent_requests):
                requests.put(request)
                self._observer.request_forwarded()
            agent_requests = []
        requests.put(None)

    async def _forward_responses(
        self,
        call: Any,
        writer: DownstreamWriter,
        requests: queue.SimpleQueue[bytes | None],
        reader: futures.Executor,
        delta: bool,
    ) -> None:
        """Forward the control plane's responses in order until it ends the stream."""
        loop = asyncio.get_running_loop()
        while (raw := await loop.run_in_executor(reader, next, call, None)) is not None:
            self._observer.response_received()
            acknowledgement = self._subscriptions.handle(raw, delta)
            if acknowledgement is None:
                await writer.write(raw)
            else:
                requests.put(acknowledgement)
                self._observer.request_forwarded()

    def _report_failure(self, call: Any) -> None:
        code: grpc.StatusCode = call.code()
        if code is grpc.StatusCode.UNAVAILABLE:
            self._observer.upstream_connection_failed()
        else:
            self._observer.upstream_closed("error")
        _log.warning(
            "the stream to the control plane %s failed: %s: %s",
            self._upstream.address,
            code.name,
            self._upstream.explain(call.details()),
        )
