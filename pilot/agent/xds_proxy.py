"""ADS passed through: what Envoy says on a Unix socket goes to the control plane over TLS, and back, as the bytes that they are.

A stream of Envoy is one stream to the control plane. When one of them ends the other does, and Envoy, which knows what it has and what
it watches, opens the next one with all of it.
"""
from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

import grpc
from grpc import aio

from pilot.agent.own_subscriptions import OwnSubscriptions
from pilot.agent.sockets import EOF
from pilot.agent.upstream import Unreachable, Upstream
from pilot.lib.log import scope

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SOTW, DELTA = "StreamAggregatedResources", "DeltaAggregatedResources"
_log = scope("xdsproxy")


class Observer(Protocol):
    """What is counted."""

    def xds_request(self) -> None: ...
    def xds_response(self) -> None: ...
    def upstream_failed(self) -> None: ...
    def upstream_ended(self, by: str) -> None: ...
    def envoy_ended(self, by: str) -> None: ...


class XdsProxy:
    """The service. `own` are the agent's subscriptions, which ride on Envoy's stream and never reach Envoy."""

    def __init__(self, upstream: Upstream, own: OwnSubscriptions, observer: Observer) -> None:
        self._upstream, self._own, self._observer = upstream, own, observer

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
            channel, metadata = self._upstream.channel(), self._upstream.metadata()
        except (Unreachable, ValueError) as error:  # ValueError: roots that are no PEM
            self._observer.upstream_failed()
            _log.warning("the control plane at %s cannot be asked: %s", self._upstream.address, error)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        async with channel:
            call = channel.stream_stream(f"/{SERVICE}/{method}")(metadata=metadata)
            sender = _Sender(call, self._own.requests(method == DELTA), self._observer)
            upwards = asyncio.create_task(sender.pump(context))
            try:
                await self._down(call, context, sender, method == DELTA)
            except aio.AioRpcError as error:
                self._failed(error, sender.started)
                await context.abort(error.code(), error.details() or "")
            except asyncio.CancelledError:
                self._observer.envoy_ended("cancelled")
                raise
            finally:
                call.cancel()
                upwards.cancel()
                with contextlib.suppress(asyncio.CancelledError, aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError):
                    await upwards
        self._observer.upstream_ended("closed")

    async def _down(self, call: Any, context: Any, sender: _Sender, delta: bool) -> None:
        while (raw := await call.read()) is not EOF:
            self._observer.xds_response()
            answer = self._own.take(raw, delta)
            if answer is None:
                await context.write(raw)
            else:
                await sender.write(answer)

    def _failed(self, error: aio.AioRpcError, started: bool) -> None:
        if started:
            self._observer.upstream_ended("error")
        else:
            self._observer.upstream_failed()
        _log.warning("the stream to the control plane at %s ended: %s: %s", self._upstream.address, error.code().name, error.details())


class _Sender:
    """Writes to the control plane: what Envoy says, and after its first message, which names the node, what the agent says itself."""

    def __init__(self, call: Any, own: list[bytes], observer: Observer) -> None:
        self._call, self._own, self._observer = call, own, observer
        self._turn = asyncio.Lock()
        self.started = False

    async def write(self, raw: bytes) -> None:
        async with self._turn:  # gRPC takes one message at a time
            await self._call.write(raw)
        self._observer.xds_request()

    async def pump(self, context: Any) -> None:
        try:
            while (raw := await context.read()) is not EOF:
                await self.write(raw)
                if not self.started:
                    self.started = True
                    for request in self._own:
                        await self.write(request)
            await self._call.done_writing()
        except (aio.AioRpcError, asyncio.InvalidStateError, aio.UsageError):
            return  # the call has ended, and who reads from it says why
