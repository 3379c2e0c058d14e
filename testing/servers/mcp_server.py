"""A server of configuration objects over xDS, as istiod or an adapter is one: every change sends all objects of its kind again."""

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
    """Objects by type URL and namespace/name, as bytes. `requests` are all that were received, `acked` and `refused` the last nonces and errors
    by type.

    `start` and `stop` may be called again and again: what is stored stays, and so does the port.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None) -> None:
        self.objects: dict[str, dict[str, bytes]] = {}
        self.port, self.streams = 0, 0
        self.requests: list[Any] = []
        self.sent: dict[str, str] = {}
        self.acked: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self._credentials = credentials
        self._nonces = itertools.count(1)
        self._changed: dict[asyncio.Queue[str], set[str]] = {}
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
        add = self._server
        self.port = (
            add.add_insecure_port(address)
            if self._credentials is None
            else add.add_secure_port(address, self._credentials)
        )
        await self._server.start()

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.stop(None)

    def put(self, plain: Mapping[str, Any]) -> str:
        """Store an object; returns its type URL."""
        of = type_of(plain)
        metadata = dict(plain["metadata"])
        self.objects.setdefault(str(of), {})[name_of(plain)] = wire.encode_object(of, metadata, plain.get("spec") or {})
        return str(of)

    def delete(self, plain: Mapping[str, Any]) -> str:
        """Take an object away; returns its type URL."""
        of = str(type_of(plain))
        del self.objects[of][name_of(plain)]
        return of

    def push(self, *types: str) -> None:
        """Send all objects of these types to everybody who asked for them."""
        for queue, asked in self._changed.items():
            for of in types:
                if of in asked:
                    queue.put_nowait(of)

    def settled(self, *types: str) -> bool:
        """Whether the last answers of the types were acknowledged or refused."""
        return all(of in self.sent and self.acked.get(of) == self.sent[of] for of in types)

    async def _stream(self, _: Any, context: Any) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        asked = self._changed[queue] = set()
        self.streams += 1
        writer = asyncio.create_task(self._write(queue, context))
        try:
            while (request := await context.read()) is not aio.EOF:  # type: ignore[attr-defined]
                self.requests.append(request)
                of = request.type_url
                if request.response_nonce:
                    self.acked[of] = request.response_nonce
                    self.refused.pop(of, None)
                    if request.HasField("error_detail"):
                        self.refused[of] = request.error_detail.message
                else:
                    asked.add(of)
                    queue.put_nowait(of)
        finally:
            del self._changed[queue]
            writer.cancel()

    async def _write(self, queue: asyncio.Queue[str], context: Any) -> None:
        while True:
            of = await queue.get()
            number = next(self._nonces)
            response = discovery_pb2.DiscoveryResponse(type_url=of, nonce=str(number), version_info=f"v{number}")
            for data in self.objects.get(of, {}).values():
                response.resources.add(type_url=wire.RESOURCE, value=data)
            self.sent[of] = response.nonce
            await context.write(response)


def type_of(plain: Mapping[str, Any]) -> ObjectType:
    group, slash, version = plain["apiVersion"].rpartition("/")
    return ObjectType(group if slash else "", version, plain["kind"])


def name_of(plain: Mapping[str, Any]) -> str:
    return f"{plain['metadata'].get('namespace', '')}/{plain['metadata']['name']}"
