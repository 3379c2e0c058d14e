"""Proxies connected to a real control plane over gRPC. Each subscribes as Envoy does and keeps its resources."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.service.discovery.v3 import discovery_pb2

from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.proxy import Proxy
from pilot.xds.ads import SERVICE
from testing.clients.ads import EOF, open_channel

CDS, EDS, LDS, RDS = (BY_SHORT_NAME[name] for name in ("cds", "eds", "lds", "rds"))
TYPES = (CDS, EDS, LDS, RDS)
WILDCARD = (CDS, LDS)
Content = dict[str, dict[str, bytes]]
"""Serialized resources by type URL and name."""


def envoy_node(proxy: Proxy) -> base_pb2.Node:
    """Return the node message of a proxy, which `parse_node` turns back into the same proxy."""
    node = base_pb2.Node(id=f"{proxy.type}~{proxy.ips[0]}~{proxy.id}~{proxy.dns_domain}")
    node.metadata.update(
        {
            **proxy.metadata,
            "INSTANCE_IPS": ",".join(proxy.ips),
            "NAMESPACE": proxy.namespace,
            "ISTIO_VERSION": proxy.version,
        }
    )
    node.locality.region, node.locality.zone, node.locality.sub_zone = (
        proxy.locality.region,
        proxy.locality.zone,
        proxy.locality.subzone,
    )
    for name in proxy.extensions or ():
        node.extensions.add(name=name)
    return node


@functools.lru_cache(100_000)
def endpoint_names(cluster: bytes) -> frozenset[str]:
    """Return the name under which a cluster requests its endpoints, if it does."""
    message = cluster_pb2.Cluster.FromString(cluster)
    if message.type != cluster_pb2.Cluster.EDS:
        return frozenset()
    return frozenset((message.eds_cluster_config.service_name or message.name,))


@functools.lru_cache(10_000)
def route_names(listener: bytes) -> frozenset[str]:
    """Return the route configurations that a listener refers to."""
    names = set()
    message = listener_pb2.Listener.FromString(listener)
    for chain in (*message.filter_chains, message.default_filter_chain):
        for network_filter in chain.filters:
            if network_filter.typed_config.Is(hcm_pb2.HttpConnectionManager.DESCRIPTOR):
                manager = hcm_pb2.HttpConnectionManager.FromString(network_filter.typed_config.value)
                names.add(manager.rds.route_config_name)
    return frozenset(names - {""})


REFERENCES = {CDS: (EDS, endpoint_names), LDS: (RDS, route_names)}
"""The type that resources of a type refer to, and the function that returns the names, by type URL."""


class ProxyClient:
    """The stream of one proxy. `resources` are the ones it is subscribed to, `responses` and `size` the number of
    responses and their total size.

    Resources that the proxy unsubscribed from while a response was under way are dropped, as in Envoy.
    """

    def __init__(self, address: str, proxy: Proxy, delta: bool) -> None:
        self.proxy, self.delta = proxy, delta
        self.resources: Content = {url: {} for url in TYPES}
        self.responses = self.size = 0
        self._subscriptions: dict[str, frozenset[str]] = {}
        self._nonces: dict[str, str] = {}
        self._references: dict[str, dict[str, frozenset[str]]] = {url: {} for url in REFERENCES}
        self._channel = open_channel(address)
        method = "DeltaAggregatedResources" if delta else "StreamAggregatedResources"
        self._call = self._channel.stream_stream(f"/{SERVICE}/{method}")()
        self._reading = asyncio.create_task(self._read())

    @property
    def name(self) -> str:
        return f"{self.proxy.type}~{self.proxy.id}"

    @property
    def ended(self) -> bool:
        return self._reading.done()

    async def stop(self) -> None:
        self._call.cancel()
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.RpcError):
            await self._reading
        await self._channel.close()

    async def _read(self) -> None:
        response_type: Any = discovery_pb2.DeltaDiscoveryResponse if self.delta else discovery_pb2.DiscoveryResponse
        try:
            await self._subscribe(CDS, frozenset(), first=True)
            await self._subscribe(LDS, frozenset())
            while (data := await self._call.read()) is not EOF:
                self.responses += 1
                self.size += len(data)
                await self.receive(response_type.FromString(data))
        except grpc.RpcError:
            return  # the stream has ended, which `ended` reports

    async def receive(self, response: Any) -> None:
        """Handle a response."""
        await self._apply(response)

    async def reject(self, response: Any, message: str) -> None:
        """Reject a response, whose resources are dropped."""
        request_type: Any = discovery_pb2.DeltaDiscoveryRequest if self.delta else discovery_pb2.DiscoveryRequest
        request = request_type(type_url=response.type_url, response_nonce=response.nonce)
        request.error_detail.code, request.error_detail.message = 13, message
        if not self.delta:
            request.resource_names.extend(sorted(self._subscriptions[response.type_url]))
        self._nonces[response.type_url] = response.nonce
        await self._write(request)

    async def _apply(self, response: Any) -> None:
        url, resources = response.type_url, self.resources[response.type_url]
        self._nonces[url] = response.nonce
        if self.delta:
            received = {r.name: r.resource.value for r in response.resources}
            for name in response.removed_resources:
                resources.pop(name, None)
        else:
            received = {_name(url, any_.value): any_.value for any_ in response.resources}
            if url in WILDCARD:
                resources.clear()
        names = self._subscriptions[url]
        resources.update((name, data) for name, data in received.items() if url in WILDCARD or name in names)
        await self._acknowledge(url)
        if url in REFERENCES:
            names_of = REFERENCES[url][1]
            removed = self._references[url].keys() - resources.keys()
            await self._follow_references(url, {name: names_of(data) for name, data in received.items()}, removed)

    async def _follow_references(
        self, url: str, received: Mapping[str, frozenset[str]], removed: Iterable[str]
    ) -> None:
        """Subscribe to the resources that clusters or listeners refer to. `received` are the names by resource."""
        references, changed = self._references[url], False
        for name in removed:
            changed |= bool(references.pop(name, None))
        for name, names in received.items():
            changed |= references.get(name, frozenset()) != names
            references[name] = names
        if changed:
            await self._subscribe(REFERENCES[url][0], frozenset().union(*references.values()))

    async def _acknowledge(self, url: str) -> None:
        if self.delta:
            await self._write(discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=self._nonces[url]))
        else:
            names = sorted(self._subscriptions[url])
            await self._write(
                discovery_pb2.DiscoveryRequest(
                    type_url=url, response_nonce=self._nonces[url], version_info="1", resource_names=names
                )
            )

    async def _subscribe(self, url: str, names: frozenset[str], first: bool = False) -> None:
        """Subscribe to these names of a type, or to all if there are none. Does nothing if they are unchanged."""
        previous = self._subscriptions.get(url)
        wildcard = url in WILDCARD
        if previous == names or (previous is None and not names and not wildcard):
            return
        self._subscriptions[url] = names
        for name in self.resources[url].keys() - names if not wildcard else ():
            del self.resources[url][name]
        if self.delta:
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=url)
            request.resource_names_subscribe.extend(sorted(names - (previous or frozenset())))
            request.resource_names_unsubscribe.extend(sorted((previous or frozenset()) - names))
        else:
            request = discovery_pb2.DiscoveryRequest(
                type_url=url, response_nonce=self._nonces.get(url, ""), resource_names=sorted(names)
            )
        if first:
            request.node.CopyFrom(envoy_node(self.proxy))
        await self._write(request)

    async def _write(self, request: Any) -> None:
        await self._call.write(request.SerializeToString())


def _name(url: str, data: bytes) -> str:
    message = _MESSAGES[url].FromString(data)
    return str(message.cluster_name if url == EDS else message.name)


_MESSAGES: Mapping[str, Any] = {
    CDS: cluster_pb2.Cluster,
    EDS: endpoint_pb2.ClusterLoadAssignment,
    LDS: listener_pb2.Listener,
    RDS: route_pb2.RouteConfiguration,
}


class Fleet:
    """The clients of one control plane, by slot."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.clients: dict[str, ProxyClient] = {}

    async def connect(self, slot: str, proxy: Proxy, delta: bool) -> None:
        await self.disconnect(slot)
        self.clients[slot] = ProxyClient(self.address, proxy, delta)

    async def disconnect(self, slot: str) -> None:
        if slot in self.clients:
            await self.clients.pop(slot).stop()

    async def stop(self) -> None:
        for slot in list(self.clients):
            await self.disconnect(slot)

    def content(self) -> dict[str, Content]:
        """Return the resources of all clients, by slot."""
        return {slot: client.resources for slot, client in self.clients.items()}

    @property
    def responses(self) -> int:
        return sum(client.responses for client in self.clients.values())

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait until no response has arrived for this many seconds."""
        before = -1
        while before != self.responses:
            before = self.responses
            await asyncio.sleep(seconds)


def difference(actual: Mapping[str, Content], expected: Mapping[str, Content]) -> list[str]:
    """Return the differences between two contents as lines "slot type resource: how"."""
    lines = [f"{slot}: connected to one of the two only" for slot in actual.keys() ^ expected.keys()]
    for slot in actual.keys() & expected.keys():
        for url in TYPES:
            actual_resources, expected_resources = actual[slot][url], expected[slot][url]
            names = sorted(
                n
                for n in actual_resources.keys() | expected_resources.keys()
                if actual_resources.get(n) != expected_resources.get(n)
            )
            lines += [
                f"{slot} {url.rpartition('.')[2]} {name}: {_verdict(actual_resources.get(name), expected_resources.get(name))}"
                for name in names
            ]
    return lines


def _verdict(actual: bytes | None, expected: bytes | None) -> str:
    return "missing" if actual is None else "surplus" if expected is None else "differs"


@contextlib.asynccontextmanager
async def fleet_of(address: str, proxies: Mapping[str, tuple[Proxy, bool]]) -> AsyncIterator[Fleet]:
    """Connect proxies to a control plane while the block runs."""
    fleet = Fleet(address)
    for slot, (proxy, delta) in proxies.items():
        await fleet.connect(slot, proxy, delta)
    try:
        yield fleet
    finally:
        await fleet.stop()
