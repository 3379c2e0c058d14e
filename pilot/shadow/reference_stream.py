"""The configuration that a reference sends to a proxy, received on its secure xDS port with the token of the proxy."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import grpc
import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import message

from pilot.lib.xds_types import BY_SHORT_NAME, short_name
from pilot.mesh.model.proxy import NodeType
from pilot.shadow.normal_form import as_plain
from pilot.shadow.reference_pages import ReferenceFault
from pilot.shadow.reference_proxies import RawResources, ReferenceProxy, resource_name
from pilot.shadow.reference_server import ReferenceServer
from pilot.xds.node import parse_node

SERVICE = "/envoy.service.discovery.v3.AggregatedDiscoveryService"
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
        stream: _Stream
        if proxy.type is NodeType.ZTUNNEL:
            stream = _ZtunnelStream(node)
        else:
            dns = proxy.type is NodeType.SIDECAR and proxy.metadata.get("DNS_CAPTURE") == "true"
            stream = _EnvoyStream(node, ["cds", "lds", *(["nds"] if dns else [])])
        try:
            await stream.run(channel, token)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise ReferenceFault(f"cannot connect to {server.address}: {error.details()}") from error
            raise StreamRefused(f"{error.code().name}: {error.details()}") from error
    watches = {BY_SHORT_NAME[kind]: frozenset(names) for kind, names in stream.names.items()}
    return ReceivedConfiguration(ReferenceProxy(f"{proxy.id}-1", proxy, watches), stream.resources)


class _Stream(abc.ABC):
    """A subscription of one proxy to all resources of some types, by their short names, and to what these refer to."""

    method: ClassVar[str]
    request_type: ClassVar[type[message.Message]]
    response_type: ClassVar[type[message.Message]]

    def __init__(self, node: base_pb2.Node, wildcards: Sequence[str]) -> None:
        self.names: dict[str, set[str]] = {}
        self.resources: RawResources = {}
        self._wildcards = wildcards
        self._node: base_pb2.Node | None = node
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._unanswered = set[str]()

    async def run(self, channel: grpc.aio.Channel, token: str) -> None:
        """Receive and acknowledge responses until the configuration is complete."""
        call: Any = channel.stream_stream(
            f"{SERVICE}/{self.method}", self.request_type.SerializeToString, self.response_type.FromString
        )(self._next_requests(), metadata=(("authorization", f"Bearer {token}"),))
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

    async def _next_response(self, call: Any) -> Any:
        """Return the next response, or None if all types were answered and none arrives any more."""
        read = asyncio.ensure_future(call.read())
        try:
            await asyncio.wait([read], timeout=None if self._unanswered else _QUIET)
            if not read.done():
                return None
            response = read.result()
        finally:
            read.cancel()
        if not isinstance(response, self.response_type):  # the end of the stream
            raise StreamRefused("the reference ended the stream")
        return response

    async def _next_requests(self) -> AsyncIterator[Any]:
        while True:
            yield await self._requests.get()

    def _subscribe(self, kind: str, names: set[str]) -> None:
        self.names[kind] = names
        self.resources.setdefault(kind, {})
        if kind in self._wildcards or kind in ("eds", "rds"):  # missing secrets and extensions are never answered
            self._unanswered.add(kind)
        self._send(self._request(kind))

    def _send(self, request: Any) -> None:
        if self._node is not None:
            request.node.CopyFrom(self._node)
            self._node = None
        self._requests.put_nowait(request)

    @abc.abstractmethod
    def _request(self, kind: str) -> Any:
        """Return the request for the names of a type."""

    @abc.abstractmethod
    def _receive(self, response: Any) -> None:
        """Store the resources of a response, and acknowledge it."""


class _EnvoyStream(_Stream):
    """A state-of-the-world subscription."""

    method = "StreamAggregatedResources"
    request_type, response_type = discovery_pb2.DiscoveryRequest, discovery_pb2.DiscoveryResponse

    def _request(self, kind: str) -> discovery_pb2.DiscoveryRequest:
        return discovery_pb2.DiscoveryRequest(type_url=BY_SHORT_NAME[kind], resource_names=sorted(self.names[kind]))

    def _receive(self, response: discovery_pb2.DiscoveryResponse) -> None:
        kind = short_name(response.type_url)
        self._unanswered.discard(kind)
        plains = [as_plain(packed) for packed in response.resources]
        raws = [msgspec.json.encode(plain) for plain in plains]
        rows = {resource_name(kind, raw): raw for raw in raws}
        self.resources[kind] = rows if kind in self._wildcards else {**self.resources.get(kind, {}), **rows}
        acknowledgement = self._request(kind)
        acknowledgement.version_info, acknowledgement.response_nonce = response.version_info, response.nonce
        self._send(acknowledgement)
        references: dict[str, set[str]] = {}
        for plain in plains:
            for target, name in _references(plain):
                references.setdefault(target, set()).add(name)
        for target, names in references.items():
            if not names <= self.names.get(target, set()):
                self._subscribe(target, names | self.names.get(target, set()))


class _ZtunnelStream(_Stream):
    """An incremental subscription to all workloads, services and policies. istiod sends ztunnels nothing otherwise."""

    method = "DeltaAggregatedResources"
    request_type, response_type = discovery_pb2.DeltaDiscoveryRequest, discovery_pb2.DeltaDiscoveryResponse

    def __init__(self, node: base_pb2.Node) -> None:
        super().__init__(node, ["wds", "wads"])

    def _request(self, kind: str) -> discovery_pb2.DeltaDiscoveryRequest:
        return discovery_pb2.DeltaDiscoveryRequest(type_url=BY_SHORT_NAME[kind])

    def _receive(self, response: discovery_pb2.DeltaDiscoveryResponse) -> None:
        kind = short_name(response.type_url)
        self._unanswered.discard(kind)
        rows = self.resources.setdefault(kind, {})
        for name in response.removed_resources:
            rows.pop(name, None)
        rows |= {one.name: msgspec.json.encode(as_plain(one.resource)) for one in response.resources}
        acknowledgement = self._request(kind)
        acknowledgement.response_nonce = response.nonce
        self._send(acknowledgement)


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
