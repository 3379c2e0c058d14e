"""Objects over xDS, for control planes that name this server in `configSources`: each change sends all objects of its kind again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from grpc import aio

from pilot.mcp.object_types import ObjectType
from pilot.mcp.wire import RESOURCE, encode_object

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SERVICE_ENTRY = ObjectType("networking.istio.io", "v1", "ServiceEntry")


class Objects:
    """ServiceEntries by namespace/name. Of any other kind there are none, and that is what its subscribers are told."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._versions = itertools.count(1)
        self._version = "0"
        self._changed: set[asyncio.Event] = set()

    def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Sets an entry; None takes it away."""
        data = encode_object(SERVICE_ENTRY, entry["metadata"], entry["spec"]) if entry is not None else None
        if self._entries.get(key) == data:
            return
        if data is None:
            del self._entries[key]
        else:
            self._entries[key] = data
        self._version = str(next(self._versions))
        for event in self._changed:
            event.set()

    def handlers(self) -> Any:
        """Returns what `grpc.aio.Server.add_generic_rpc_handlers` takes."""
        method = grpc.stream_stream_rpc_method_handler(
            self._stream, discovery_pb2.DiscoveryRequest.FromString, discovery_pb2.DiscoveryResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"StreamAggregatedResources": method})

    async def _stream(self, _: Any, context: Any) -> None:
        sent: dict[str, str] = {}
        changed = asyncio.Event()
        self._changed.add(changed)
        pushing = asyncio.create_task(self._push(context, sent, changed))
        try:
            while (request := await context.read()) is not aio.EOF:  # type: ignore[attr-defined]
                if request.HasField("error_detail"):
                    print(f"{request.type_url} is refused: {request.error_detail.message}", flush=True)
                elif request.type_url not in sent:
                    sent[request.type_url] = ""
                    changed.set()
        finally:
            self._changed.discard(changed)
            pushing.cancel()

    async def _push(self, context: Any, sent: dict[str, str], changed: asyncio.Event) -> None:
        """Sends what a stream has asked for and lacks."""
        while True:
            await changed.wait()
            changed.clear()
            for type_url in list(sent):
                is_entries = type_url == str(SERVICE_ENTRY)
                version = self._version if is_entries else "0"
                if sent[type_url] == version:
                    continue
                sent[type_url] = version
                response = discovery_pb2.DiscoveryResponse(
                    type_url=type_url, version_info=version, nonce=f"{type_url}/{version}"
                )
                for data in self._entries.values() if is_entries else ():
                    response.resources.add(type_url=RESOURCE, value=data)
                await context.write(response)
