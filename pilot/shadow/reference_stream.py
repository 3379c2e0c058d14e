"""The configuration that a reference sends to a proxy, received on its secure xDS port with the token of the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NamedTuple

import grpc
import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.model.proxy import NodeType
from pilot.shadow.normal_form import as_plain
from pilot.shadow.reference_pages import ReferenceFault
from pilot.shadow.reference_proxies import RawResources, ReferenceProxy, resource_name
from pilot.shadow.reference_server import ReferenceServer
from pilot.xds.node import parse_node

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
_QUIET, _LIMIT = 0.5, 30.0
"""Seconds without a response after which the configuration is complete, and the maximum for the whole configuration."""
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1))


class StreamRefused(Exception):
    """The reference refused the stream of a proxy. The message is the reason."""


class ReceivedConfiguration(NamedTuple):
    """A proxy with the names that it subscribes to, and the resources that it received."""

    proxy: ReferenceProxy
    resources: RawResources


async def receive_configuration(server: ReferenceServer, node: base_pb2.Node, token: str) -> ReceivedConfiguration:
    """Return the configuration of a proxy, which is connected meanwhile.

    Raise ReferenceFault if the reference is unreachable, StreamRefused if it refuses the proxy, or NodeError if the
    node is invalid.
    """
    proxy = parse_node(node)
    credentials = grpc.ssl_channel_credentials(server.roots)
    options = [*_OPTIONS, ("grpc.ssl_target_name_override", server.name)]
    async with grpc.aio.secure_channel(server.address, credentials, options) as channel:
        stream = _Stream(node, dns=proxy.type is NodeType.SIDECAR and proxy.metadata.get("DNS_CAPTURE") == "true")
        try:
            await stream.run(channel, token)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise ReferenceFault(f"cannot connect to {server.address}: {error.details()}") from error
            raise StreamRefused(f"{error.code().name}: {error.details()}") from error
    watches = {BY_SHORT_NAME[kind]: frozenset(names) for kind, names in stream.names.items()}
    return ReceivedConfiguration(ReferenceProxy(f"{proxy.id}-1", proxy, watches), stream.resources)


class _Stream:
    """A subscription of one proxy, by the short names of types. Every response is acknowledged."""

    def __init__(self, node: base_pb2.Node, dns: bool) -> None:
        self.names: dict[str, set[str]] = {}
        self.resources: RawResources = {}
        self._node: base_pb2.Node | None = node
        self._wildcards = ["cds", "lds", *(["nds"] if dns else [])]
        self._requests: asyncio.Queue[discovery_pb2.DiscoveryRequest] = asyncio.Queue()
        self._unanswered = set[str]()

    async def run(self, channel: grpc.aio.Channel, token: str) -> None:
        """Receive responses until the configuration is complete."""
        method: Any = channel.stream_stream(
            METHOD, discovery_pb2.DiscoveryRequest.SerializeToString, discovery_pb2.DiscoveryResponse.FromString
        )
        call = method(self._next_requests(), metadata=(("authorization", f"Bearer {token}"),))
        for kind in self._wildcards:
            self._subscribe(kind, set())
        try:
            async with asyncio.timeout(_LIMIT):
                while (response := await self._next_response(call)) is not None:
                    self._receive(response)
        except TimeoutError as error:
            raise StreamRefused(f"no complete configuration within {_LIMIT:.0f} s") from error
        finally:
            call.cancel()

    async def _next_response(self, call: Any) -> discovery_pb2.DiscoveryResponse | None:
        """Return the next response, or None if all types were answered and none arrives any more."""
        read = asyncio.ensure_future(call.read())
        try:
            await asyncio.wait([read], timeout=None if self._unanswered else _QUIET)
            if not read.done():
                return None
            response = read.result()
        finally:
            read.cancel()
        if not isinstance(response, discovery_pb2.DiscoveryResponse):  # the end of the stream
            raise StreamRefused("the reference ended the stream")
        return response

    async def _next_requests(self) -> AsyncIterator[discovery_pb2.DiscoveryRequest]:
        while True:
            yield await self._requests.get()

    def _receive(self, response: discovery_pb2.DiscoveryResponse) -> None:
        kind = short_name(response.type_url)
        self._unanswered.discard(kind)
        plains = [as_plain(packed) for packed in response.resources]
        raws = [msgspec.json.encode(plain) for plain in plains]
        rows = {resource_name(kind, raw): raw for raw in raws}
        self.resources[kind] = rows if kind in self._wildcards else {**self.resources.get(kind, {}), **rows}
        self._send(kind, response.version_info, response.nonce)
        references: dict[str, set[str]] = {}
        for plain in plains:
            for target, name in _references(plain):
                references.setdefault(target, set()).add(name)
        for target, names in references.items():
            if not names <= self.names.get(target, set()):
                self._subscribe(target, names | self.names.get(target, set()))

    def _subscribe(self, kind: str, names: set[str]) -> None:
        self.names[kind] = names
        self.resources.setdefault(kind, {})
        if kind in ("cds", "lds", "eds", "rds"):  # secrets and extensions that do not exist are never answered
            self._unanswered.add(kind)
        self._send(kind)

    def _send(self, kind: str, version: str = "", nonce: str = "") -> None:
        request = discovery_pb2.DiscoveryRequest(
            type_url=BY_SHORT_NAME[kind],
            resource_names=sorted(self.names[kind]),
            version_info=version,
            response_nonce=nonce,
        )
        if self._node is not None:
            request.node.CopyFrom(self._node)
            self._node = None
        self._requests.put_nowait(request)


def _references(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the short types and names of the resources that a resource refers to."""
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        yield from _own_references(value)
        for field in value.values():
            yield from _references(field)


def _own_references(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if fields.get("type") == "EDS":
        yield "eds", (fields.get("edsClusterConfig") or {}).get("serviceName") or fields["name"]
    if isinstance(routes := fields.get("rds"), dict):
        yield "rds", routes["routeConfigName"]
    if isinstance(fields.get("configDiscovery"), dict):
        yield "ecds", fields["name"]
    if "ads" in (fields.get("sdsConfig") or {}):
        yield "sds", fields["name"]
