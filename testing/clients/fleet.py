"""Proxies of a real control plane, over gRPC: each follows its stream as Envoy does, and knows what it has."""

from __future__ import annotations

import asyncio
import contextlib
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
    """The node that the proxy announces; `parse_node` makes the same proxy of it."""
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


def endpoint_names(clusters: Iterable[bytes]) -> set[str]:
    """The names under which clusters ask for their endpoints."""
    found = set()
    for data in clusters:
        cluster = cluster_pb2.Cluster.FromString(data)
        if cluster.type == cluster_pb2.Cluster.EDS:
            found.add(cluster.eds_cluster_config.service_name or cluster.name)
    return found


def route_names(listeners: Iterable[bytes]) -> set[str]:
    """The route configurations that listeners ask for."""
    found = set()
    for data in listeners:
        listener = listener_pb2.Listener.FromString(data)
        for chain in (*listener.filter_chains, listener.default_filter_chain):
            for part in chain.filters:
                if part.typed_config.Is(hcm_pb2.HttpConnectionManager.DESCRIPTOR):
                    manager = hcm_pb2.HttpConnectionManager.FromString(part.typed_config.value)
                    found.add(manager.rds.route_config_name)
    return found - {""}


class Follower:
    """One stream. `have` is what the proxy holds of what it asks for; `responses` counts those taken.

    A response that crossed the request that no longer asks for its resources leaves nothing behind, as in Envoy.
    """

    def __init__(self, address: str, proxy: Proxy, delta: bool) -> None:
        self.proxy, self.delta = proxy, delta
        self.have: Content = {url: {} for url in TYPES}
        self.responses = 0
        self._asked: dict[str, frozenset[str]] = {}
        self._nonces: dict[str, str] = {}
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
            await self._ask(CDS, frozenset(), first=True)
            await self._ask(LDS, frozenset())
            while (data := await self._call.read()) is not EOF:
                self.responses += 1
                await self._take(response_type.FromString(data))
        except grpc.RpcError:
            return  # the stream has ended: `ended` says so

    async def _take(self, response: Any) -> None:
        url, have = response.type_url, self.have[response.type_url]
        self._nonces[url] = response.nonce
        if self.delta:
            given = {r.name: r.resource.value for r in response.resources}
            for name in response.removed_resources:
                have.pop(name, None)
        else:
            given = {_name(url, any_.value): any_.value for any_ in response.resources}
            if url in WILDCARD:
                have.clear()
        asked = self._asked[url]
        have.update((name, data) for name, data in given.items() if url in WILDCARD or name in asked)
        await self._acknowledge(url)
        if url == CDS:
            await self._ask(EDS, frozenset(endpoint_names(have.values())))
        elif url == LDS:
            await self._ask(RDS, frozenset(route_names(have.values())))

    async def _acknowledge(self, url: str) -> None:
        if self.delta:
            await self._write(discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=self._nonces[url]))
        else:
            names = sorted(self._asked[url])
            await self._write(
                discovery_pb2.DiscoveryRequest(
                    type_url=url, response_nonce=self._nonces[url], version_info="1", resource_names=names
                )
            )

    async def _ask(self, url: str, names: frozenset[str], first: bool = False) -> None:
        """Subscribe to these names of a type (none: to all of it), if they are others than before."""
        before = self._asked.get(url)
        wildcard = url in WILDCARD
        if before == names or (before is None and not names and not wildcard):
            return
        self._asked[url] = names
        for gone in self.have[url].keys() - names if not wildcard else ():
            del self.have[url][gone]
        if self.delta:
            request = discovery_pb2.DeltaDiscoveryRequest(type_url=url)
            request.resource_names_subscribe.extend(sorted(names - (before or frozenset())))
            request.resource_names_unsubscribe.extend(sorted((before or frozenset()) - names))
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
    """Followers of one control plane, by the name of their slot."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.followers: dict[str, Follower] = {}

    async def connect(self, slot: str, proxy: Proxy, delta: bool) -> None:
        await self.disconnect(slot)
        self.followers[slot] = Follower(self.address, proxy, delta)

    async def disconnect(self, slot: str) -> None:
        if slot in self.followers:
            await self.followers.pop(slot).stop()

    async def stop(self) -> None:
        for slot in list(self.followers):
            await self.disconnect(slot)

    def content(self) -> dict[str, Content]:
        return {slot: follower.have for slot, follower in self.followers.items()}

    @property
    def responses(self) -> int:
        return sum(follower.responses for follower in self.followers.values())

    async def quiet(self, seconds: float) -> None:
        """Wait until no response has come for a while."""
        before = -1
        while before != self.responses:
            before = self.responses
            await asyncio.sleep(seconds)


def difference(got: Mapping[str, Content], want: Mapping[str, Content]) -> list[str]:
    """What is not as a fresh start has it: "proxy, type, resource"."""
    wrong = [f"{slot}: connected to one of the two only" for slot in got.keys() ^ want.keys()]
    for slot in got.keys() & want.keys():
        for url in TYPES:
            ours, fresh = got[slot][url], want[slot][url]
            names = sorted(n for n in ours.keys() | fresh.keys() if ours.get(n) != fresh.get(n))
            wrong += [
                f"{slot} {url.rpartition('.')[2]} {name}: {_how(ours.get(name), fresh.get(name))}" for name in names
            ]
    return wrong


def _how(got: bytes | None, want: bytes | None) -> str:
    return "missing" if got is None else "surplus" if want is None else "differs"


@contextlib.asynccontextmanager
async def fleet_of(address: str, proxies: Mapping[str, tuple[Proxy, bool]]) -> AsyncIterator[Fleet]:
    fleet = Fleet(address)
    for slot, (proxy, delta) in proxies.items():
        await fleet.connect(slot, proxy, delta)
    try:
        yield fleet
    finally:
        await fleet.stop()
