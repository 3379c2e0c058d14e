"""ADS passed through: what Envoy says on a Unix socket goes to the control plane over TLS, and back, as the bytes that they are.

A stream of Envoy is one stream to the control plane. When one of them ends the other does, and Envoy, which knows what it has and what
it watches, opens the next one with all of it.

The control plane's side runs in threads: for event loops, gRPC does not say why a call has ended if a message was being written.
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
from pilot.lib.log import scope

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SOTW, DELTA = "StreamAggregatedResources", "DeltaAggregatedResources"
PAUSES = (10.0, 300.0)
_log = scope("xdsproxy")


class XdsObserver(Protocol):
    """What is counted."""

    def request_forwarded(self) -> None: ...
    def response_received(self) -> None: ...
    def upstream_connection_failed(self) -> None: ...
    def upstream_closed(self, by: str) -> None: ...
    def envoy_closed(self, by: str) -> None: ...


class XdsProxy:
    """The service. `own` are the agent's subscriptions, which ride on Envoy's stream and never reach Envoy; `rewriter` is what happens to the
    configuration of extensions, in a thread, while everything else goes on; `pauses` are those before modules are asked for again."""

    def __init__(
        self,
        upstream: UpstreamServer,
        own: AgentSubscriptions,
        observer: XdsObserver,
        rewriter: Rewriter | None = None,
        pauses: tuple[float, float] = PAUSES,
    ) -> None:
        self._upstream, self._own, self._observer, self._rewriter, self._pauses = (
            upstream,
            own,
            observer,
            rewriter,
            pauses,
        )

    def handlers(self) -> Any:
        """Returns what `grpc.aio.Server.add_generic_rpc_handlers` takes."""
        methods = {name: grpc.stream_stream_rpc_method_handler(getattr(self, f"_{name}")) for name in (SOTW, DELTA)}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _StreamAggregatedResources(self, _: Any, context: Any) -> None:
        await self._pass(SOTW, context)

    async def _DeltaAggregatedResources(self, _: Any, context: Any) -> None:
        await self._pass(DELTA, context)

    async def _pass(self, method: str, context: Any) -> None:
        try:
            channel, metadata = self._upstream.blocking_channel(), self._upstream.metadata()
        except (UpstreamConfigError, ValueError) as error:  # ValueError: roots that are no PEM
            self._observer.upstream_connection_failed()
            _log.warning("the control plane at %s cannot be asked: %s", self._upstream.address, error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        call = channel.stream_stream(f"/{SERVICE}/{method}")(iter(requests.get, None), metadata=metadata)
        upwards = asyncio.create_task(self._up(context, requests, method == DELTA))
        reader = futures.ThreadPoolExecutor(1, "xds")
        extensions = ExtensionStream(self._rewriter, method == DELTA) if self._rewriter is not None else None
        to_envoy = DownstreamWriter(context, extensions, self._pauses)
        try:
            await self._down(call, to_envoy, requests, reader, method == DELTA)
            await to_envoy.finish()
        except grpc.RpcError:
            self._failed(call)
            await to_envoy.finish()
            await context.abort(call.code(), call.details() or "")
        except asyncio.CancelledError:
            self._observer.envoy_closed("cancelled")
            raise
        finally:
            call.cancel()
            requests.put(None)
            upwards.cancel()
            to_envoy.end()
            reader.shutdown(wait=False)
            channel.close()
        self._observer.upstream_closed("closed")

    async def _up(self, context: Any, requests: queue.SimpleQueue[bytes | None], delta: bool) -> None:
        """Sends what Envoy says, and after its first message, which names the node, what the agent asks for itself."""
        own = self._own.requests(delta)
        while (raw := await context.read()) is not EOF:
            for request in (raw, *own):
                requests.put(request)
                self._observer.request_forwarded()
            own = []
        requests.put(None)

    async def _down(
        self,
        call: Any,
        to_envoy: DownstreamWriter,
        requests: queue.SimpleQueue[bytes | None],
        reader: futures.Executor,
        delta: bool,
    ) -> None:
        """Passes on what the control plane says, one message after the other, until it ends the stream."""
        loop = asyncio.get_running_loop()
        while (raw := await loop.run_in_executor(reader, next, call, None)) is not None:
            self._observer.response_received()
            answer = self._own.take(raw, delta)
            if answer is None:
                await to_envoy.write(raw)
            else:
                requests.put(answer)
                self._observer.request_forwarded()

    def _failed(self, call: Any) -> None:
        code: grpc.StatusCode = call.code()
        if code is grpc.StatusCode.UNAVAILABLE:
            self._observer.upstream_connection_failed()
        else:
            self._observer.upstream_closed("error")
        _log.warning(
            "the stream to the control plane at %s ended: %s: %s", self._upstream.address, code.name, call.details()
        )
