"""An MCP server, like istiod or an adapter: every change sends all objects of the type again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from grpc import aio

from pilot.mcp import wire
from pilot.mcp.object_types import ObjectType

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
Key = tuple[str, str]


class McpServer:
    """Objects by type URL and namespace/name, as bytes.

    `requests` are all received requests, `acked` and `rejected` the last nonce and error by type. It can be started and
    stopped repeatedly: it keeps its objects and its port.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.objects: dict[str, dict[str, bytes]] = {}
        self.port, self.streams = 0, 0
        self.requests: list[Any] = []
        self.sent: dict[str, str] = {}
        self.acked: dict[str, str] = {}
        self.rejected: dict[str, str] = {}
        self._credentials = credentials
        self._nonces = itertools.count(1)
        self._subscriptions: dict[asyncio.Queue[str], set[str]] = {}
        self._server: aio.Server | None = None

    async def start(self) -> None:
        self._server = aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {
            "StreamAggregatedResources": grpc.stream_stream_rpc_method_handler(
                self._stream,
                discovery_pb2.DiscoveryRequest.FromString,
                discovery_pb2.DiscoveryResponse.SerializeToString,
            )
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        address = f"127.0.0.1:{self.port}"
        server = self._server
        self.port = (
            server.add_insecure_port(address)
            if self._credentials is None
            else server.add_secure_port(address, self._credentials)
        )
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(None)

    def put(self, plain: Mapping[str, Any]) -> str:
        """Store an object, and return its type URL."""
        type_ = type_of(plain)
        metadata = dict(plain["metadata"])
        self.objects.setdefault(str(type_), {})[name_of(plain)] = wire.encode_object(
            type_, metadata, plain.get("spec") or {}
        )
        return str(type_)

    def delete(self, plain: Mapping[str, Any]) -> str:
        """Delete an object, and return its type URL."""
        type_url = str(type_of(plain))
        del self.objects[type_url][name_of(plain)]
        return type_url

    def push(self, *types: str) -> None:
        """Send all objects of these types to every subscriber."""
        for queue, subscribed in self._subscriptions.items():
            for type_url in types:
                if type_url in subscribed:
                    queue.put_nowait(type_url)

    def is_acknowledged(self, *types: str) -> bool:
        """Return whether the last responses of these types were acknowledged or rejected."""
        return all(type_url in self.sent and self.acked.get(type_url) == self.sent[type_url] for type_url in types)

    async def _stream(self, _: Any, context: Any) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        subscribed = self._subscriptions[queue] = set()
        self.streams += 1
        writer = asyncio.create_task(self._write(queue, context))
        try:
            while (request := await context.read()) is not aio.EOF:  # type: ignore[attr-defined]
                self.requests.append(request)
                type_url = request.type_url
                if request.response_nonce:
                    self.acked[type_url] = request.response_nonce
                    self.rejected.pop(type_url, None)
                    if request.HasField("error_detail"):
                        self.rejected[type_url] = request.error_detail.message
                else:
                    subscribed.add(type_url)
                    queue.put_nowait(type_url)
        finally:
            del self._subscriptions[queue]
            writer.cancel()

    async def _write(self, queue: asyncio.Queue[str], context: Any) -> None:
        while True:
            type_url = await queue.get()
            number = next(self._nonces)
            response = discovery_pb2.DiscoveryResponse(type_url=type_url, nonce=str(number), version_info=f"v{number}")
            for data in self.objects.get(type_url, {}).values():
                response.resources.add(type_url=wire.RESOURCE, value=data)
            self.sent[type_url] = response.nonce
            await context.write(response)


def type_of(plain: Mapping[str, Any]) -> ObjectType:
    group, slash, version = plain["apiVersion"].rpartition("/")
    return ObjectType(group if slash else "", version, plain["kind"])


def name_of(plain: Mapping[str, Any]) -> str:
    return f"{plain['metadata'].get('namespace', '')}/{plain['metadata']['name']}"
