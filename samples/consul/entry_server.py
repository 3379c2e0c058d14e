"""A state-of-the-world xDS server for control planes that list it in `configSources`."""

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


class EntryServer:
    """Serves ServiceEntries. Subscribers to any other kind receive an empty list."""

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._versions = itertools.count(1)
        self._version = "0"
        self._listeners: set[asyncio.Event] = set()

    def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Set the entry of a key, or remove it if it is None."""
        data = encode_object(SERVICE_ENTRY, entry["metadata"], entry["spec"]) if entry is not None else None
        if self._entries.get(key) == data:
            return
        if data is None:
            del self._entries[key]
        else:
            self._entries[key] = data
        self._version = str(next(self._versions))
        for event in self._listeners:
            event.set()

    def handlers(self) -> Any:
        """Return the handler for `grpc.aio.Server.add_generic_rpc_handlers`."""
        method = grpc.stream_stream_rpc_method_handler(
            self._stream, discovery_pb2.DiscoveryRequest.FromString, discovery_pb2.DiscoveryResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"StreamAggregatedResources": method})

    async def _stream(self, _: Any, context: Any) -> None:
        sent_versions: dict[str, str] = {}
        changed = asyncio.Event()
        self._listeners.add(changed)
        push = asyncio.create_task(self._push(context, sent_versions, changed))
        try:
            while (request := await context.read()) is not aio.EOF:  # type: ignore[attr-defined]
                if request.HasField("error_detail"):
                    print(f"{request.type_url} was rejected: {request.error_detail.message}", flush=True)
                elif request.type_url not in sent_versions:
                    sent_versions[request.type_url] = ""
                    changed.set()
        finally:
            self._listeners.discard(changed)
            push.cancel()

    async def _push(self, context: Any, sent_versions: dict[str, str], changed: asyncio.Event) -> None:
        """Send each subscribed kind when its version changes."""
        while True:
            await changed.wait()
            changed.clear()
            for type_url in list(sent_versions):
                is_entries = type_url == str(SERVICE_ENTRY)
                version = self._version if is_entries else "0"
                if sent_versions[type_url] == version:
                    continue
                sent_versions[type_url] = version
                response = discovery_pb2.DiscoveryResponse(
                    type_url=type_url, version_info=version, nonce=f"{type_url}/{version}"
                )
                for data in self._entries.values() if is_entries else ():
                    response.resources.add(type_url=RESOURCE, value=data)
                await context.write(response)
