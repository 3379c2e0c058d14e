"""The cluster traits: properties of a proxy that affect its clusters."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from pilot.mesh.model.facets import (
    FACET_CACHE_SIZE,
    InboundFacet,
    LocationFacet,
    OutboundFacet,
    ScopeFacet,
    SecretServersFacet,
    TlsFilesFacet,
)
from pilot.mesh.model.proxy import NodeType


class ClusterTraitsKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Properties of a proxy that affect its clusters."""

    type: NodeType = NodeType.SIDECAR
    metadata_exchange: bool = True
    supports_tunnels: bool = True  # HBONE, if the mesh uses it
    tunnel_metadata: bool = True
    ipv4: bool = True
    ipv6: bool = False
    preserve_case: bool = False
    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()


@lru_cache(maxsize=FACET_CACHE_SIZE)
def outbound_traits(outbound: OutboundFacet) -> ClusterTraitsKey:
    """Return the cluster traits of a proxy's outbound side."""
    return ClusterTraitsKey(
        outbound.type,
        outbound.features.metadata_exchange,
        outbound.features.internal_listeners,
        outbound.features.tunnel_metadata,
        outbound.location.ipv4,
        outbound.location.ipv6,
        outbound.preserve_case,
        outbound.tls_files,
        outbound.secret_servers,
    )


@lru_cache(maxsize=FACET_CACHE_SIZE)
def shared_traits(traits: ClusterTraitsKey) -> ClusterTraitsKey:
    """Return the traits of a sidecar for those of a router, for clusters that are the same for both."""
    return msgspec.structs.replace(traits, type=NodeType.SIDECAR) if traits.type is NodeType.ROUTER else traits


@lru_cache(maxsize=FACET_CACHE_SIZE)
def without_location(outbound: OutboundFacet) -> OutboundFacet:
    """Return the facet without the proxy's location.

    Only clusters that contain their endpoints depend on the location. Without it, more proxies share the other
    clusters.
    """
    return OutboundFacet(
        type=outbound.type,
        scope=outbound.scope,
        features=outbound.features,
        location=LocationFacet(cluster_id="", ipv4=outbound.location.ipv4, ipv6=outbound.location.ipv6),
        labels=outbound.labels,
        tls_files=outbound.tls_files,
        secret_servers=outbound.secret_servers,
        preserve_case=outbound.preserve_case,
    )


@lru_cache(maxsize=FACET_CACHE_SIZE)
def without_scope(outbound: OutboundFacet) -> OutboundFacet:
    """Return the facet without the proxy's scope.

    After the cluster keys and their rules are determined, nothing depends on the scope. Proxies in different namespaces
    can then share results.
    """
    return msgspec.structs.replace(outbound, scope=ScopeFacet(""))


def ip_families(ips: tuple[str, ...]) -> tuple[bool, bool]:
    """Return whether a proxy has IPv4 addresses, and whether it has IPv6 addresses."""
    is_ipv6 = [":" in ip for ip in ips]
    return False in is_ipv6, True in is_ipv6


@lru_cache(maxsize=FACET_CACHE_SIZE)
def inbound_traits(inbound: InboundFacet) -> ClusterTraitsKey:
    """Return the cluster traits of a sidecar's inbound side."""
    ipv4, ipv6 = ip_families(inbound.ips)
    listening = inbound.listening
    preserve_case = bool(listening.headers.preserve_http1_header_case)
    return ClusterTraitsKey(
        NodeType.SIDECAR, listening.features.metadata_exchange, False, False, ipv4, ipv6, preserve_case
    )
