"""An ADS client that subscribes as Envoy does, keeps the bytes of what it receives, and acknowledges everything.

It subscribes to all clusters and listeners, to the endpoints of EDS clusters, and to the routes and extension configs of listeners.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import any_pb2, json_format

from tests.conformance.scenario import XDS_TYPES, Plain, ScenarioProxy

SHORT_NAMES = {url: name for name, url in XDS_TYPES.items()}
WILDCARD = {"CDS", "LDS", "NDS", "WDS", "WADS"}
"""Types of which a proxy subscribes to all resources."""
CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


class AdsClient:
    """The stream of one proxy. `resources` are those it has, packed, by the short name of their type and by name.

    `nack_next` is a response to reject: the short name of its type, and the code and message of the error.
    """

    def __init__(self, proxy: ScenarioProxy, channel: grpc.aio.Channel) -> None:
        self.proxy = proxy
        self.resources: dict[str, dict[str, any_pb2.Any]] = {kind: {} for kind in proxy.types}
        self.responses = 0
        self.nack_next: Plain | None = None
        self.quiet_since = time.monotonic()
        self._answered: set[str] = set()
        self._error: BaseException | None = None
        self._names: dict[str, set[str]] = {}
        self._nonces: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._node: base_pb2.Node | None = json_format.ParseDict(proxy.node, base_pb2.Node())
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        stub: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
        open_stream = stub.DeltaAggregatedResources if proxy.is_delta else stub.StreamAggregatedResources
        self._call = open_stream(self._next_requests())
        self._reader = asyncio.create_task(self._read())
        for kind in proxy.types:
            if kind in WILDCARD:
                self._names[kind] = set()
                self._send(kind)

    async def settle(self, quiet: float, limit: float) -> None:
        """Wait until every wildcard type was answered and nothing has arrived for `quiet` seconds."""
        deadline = time.monotonic() + limit
        awaited = WILDCARD & set(self.proxy.types)
        while time.monotonic() < deadline:
            if self._error is not None:
                raise self._error
            if awaited <= self._answered and time.monotonic() - self.quiet_since > quiet:
                return
            await asyncio.sleep(quiet / 5)
        if not self._answered:
            raise TimeoutError(f"{self.proxy.name}: no response within {limit:.0f} s")

    def expect_changes(self, seconds: float) -> None:
        """Do not settle before a change can have arrived: the server debounces, and watches its files."""
        self.responses = 0
        self.quiet_since = time.monotonic() + seconds

    def stop_awaiting_answers(self) -> None:
        """Do not wait again for types that the server has not answered."""
        self._answered |= set(self.proxy.types)

    async def close(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _next_requests(self) -> AsyncIterator[Any]:
        while True:
            yield await self._requests.get()

    async def _read(self) -> None:
        try:
            async for response in self._call:
                self.quiet_since = time.monotonic()
                self.responses += 1
                self._receive(response)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # raised by settle
            if not (isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.CANCELLED):
                self._error = error

    def _receive(self, response: Any) -> None:
        kind = SHORT_NAMES.get(response.type_url, response.type_url)
        self._nonces[kind] = response.nonce
        if self.nack_next is not None and self.nack_next["type"] == kind:
            nack, self.nack_next = self.nack_next, None
            self._send(kind, nack=nack)
            return
        resources = self.resources.setdefault(kind, {})
        if self.proxy.is_delta:
            for name in response.removed_resources:
                resources.pop(name, None)
            resources.update({resource.name: resource.resource for resource in response.resources})
        else:
            self._versions[kind] = response.version_info
            if kind in WILDCARD:
                resources.clear()
            resources.update({_name_of(kind, packed): packed for packed in response.resources})
        self._answered.add(kind)
        self._send(kind)
        self._subscribe_to_references(kind, resources.values())

    def _subscribe_to_references(self, kind: str, resources: Iterable[any_pb2.Any]) -> None:
        if kind == "CDS" and "EDS" in self.proxy.types:
            self._subscribe("EDS", {name for packed in resources for name in _endpoint_names(packed)})
        if kind == "LDS":
            listeners = [listener_pb2.Listener.FromString(packed.value) for packed in resources]
            if "RDS" in self.proxy.types:
                self._subscribe("RDS", {name for listener in listeners for name in _route_names(listener)})
            extensions = {name for listener in listeners for name in _extension_names(listener)}
            if "ECDS" in self.proxy.types or extensions:
                self._subscribe("ECDS", extensions)
            if "SDS" in self.proxy.types:
                self._subscribe("SDS", {name for listener in listeners for name in _secret_names(listener)})

    def _subscribe(self, kind: str, names: set[str]) -> None:
        previous = self._names.get(kind, set())
        if names == previous:
            return
        self._names[kind] = names
        for name in previous - names:
            self.resources.setdefault(kind, {}).pop(name, None)
        self._send(kind, subscribe=names - previous, unsubscribe=previous - names)

    def _send(
        self,
        kind: str,
        subscribe: Iterable[str] = (),
        unsubscribe: Iterable[str] = (),
        nack: Plain | None = None,
    ) -> None:
        """Send a request: an ACK or a NACK, unless it changes the subscription."""
        url, changes = XDS_TYPES.get(kind, kind), bool(subscribe or unsubscribe)
        request: Any
        if self.proxy.is_delta:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=url,
                response_nonce="" if changes else self._nonces.get(kind, ""),
                resource_names_subscribe=sorted(subscribe),
                resource_names_unsubscribe=sorted(unsubscribe),
            )
        else:
            request = discovery_pb2.DiscoveryRequest(
                type_url=url,
                version_info=self._versions.get(kind, ""),
                response_nonce=self._nonces.get(kind, ""),
                resource_names=sorted(self._names.get(kind, ())),
            )
        if nack is not None:
            request.error_detail.code, request.error_detail.message = nack["code"], nack["message"]
        if self._node is not None:
            request.node.CopyFrom(self._node)
            self._node = None
        self._requests.put_nowait(request)


def _name_of(kind: str, packed: any_pb2.Any) -> str:
    """Return the name of a resource: the first field of every message but a name table."""
    data = packed.value
    if kind == "NDS" or not data or data[0] != 0x0A:
        return ""
    size = shift = 0
    for position, byte in enumerate(data[1:], 1):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return data[position + 1 : position + 1 + size].decode("utf-8", "replace")
    return ""


def _endpoint_names(packed: any_pb2.Any) -> set[str]:
    cluster = cluster_pb2.Cluster.FromString(packed.value)
    is_eds = cluster.type == cluster_pb2.Cluster.EDS
    return {cluster.eds_cluster_config.service_name or cluster.name} if is_eds else set()


def _chains(listener: listener_pb2.Listener) -> list[Any]:
    default = [listener.default_filter_chain] if listener.HasField("default_filter_chain") else []
    return [*listener.filter_chains, *default]


def _managers(listener: listener_pb2.Listener) -> list[hcm_pb2.HttpConnectionManager]:
    filters = [filter_ for chain in _chains(listener) for filter_ in chain.filters]
    configs = [f.typed_config for f in filters if f.typed_config.Is(hcm_pb2.HttpConnectionManager.DESCRIPTOR)]
    return [hcm_pb2.HttpConnectionManager.FromString(config.value) for config in configs]


def _route_names(listener: listener_pb2.Listener) -> set[str]:
    return {manager.rds.route_config_name for manager in _managers(listener) if manager.HasField("rds")}


def _extension_names(listener: listener_pb2.Listener) -> set[str]:
    network = {f.name for chain in _chains(listener) for f in chain.filters if f.HasField("config_discovery")}
    return network | {f.name for m in _managers(listener) for f in m.http_filters if f.HasField("config_discovery")}


def _secret_names(listener: listener_pb2.Listener) -> set[str]:
    names: set[str] = set()
    for chain in listener.filter_chains:
        config = chain.transport_socket.typed_config
        if config.Is(tls_pb2.DownstreamTlsContext.DESCRIPTOR):
            context = tls_pb2.DownstreamTlsContext.FromString(config.value).common_tls_context
            secrets = context.tls_certificate_sds_secret_configs
            names |= {secret.name for secret in secrets if secret.sds_config.HasField("ads")}
    return names
