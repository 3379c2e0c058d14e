"""Holds what the mesh config and the settings say to every cluster, and what of a proxy its clusters are made by."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from pilot.mesh.model.facets import (
    PARTS_KEPT,
    InboundFacet,
    OutboundFacet,
    ReachFacet,
    ScopeFacet,
    SecretServersFacet,
    TlsFilesFacet,
)
from pilot.mesh.model.proxy import NodeType


class ClusterTraitsKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Holds the part of a proxy's facets that its clusters are made by."""

    type: NodeType = NodeType.SIDECAR
    metadata_exchange: bool = True
    tunnels: bool = True  # it can lead through tunnels, if the mesh does that
    ipv4: bool = True
    ipv6: bool = False
    preserve_case: bool = False
    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()


@lru_cache(maxsize=PARTS_KEPT)
def outbound_traits(outbound: OutboundFacet) -> ClusterTraitsKey:
    """Returns the traits of a proxy's outbound side."""
    return ClusterTraitsKey(
        outbound.type,
        outbound.features.metadata_exchange,
        outbound.features.internal_listeners,
        outbound.reach.ipv4,
        outbound.reach.ipv6,
        outbound.preserve_case,
        outbound.tls_files,
        outbound.secret_servers,
    )


@lru_cache(maxsize=PARTS_KEPT)
def without_location(outbound: OutboundFacet) -> OutboundFacet:
    """Returns the facet without its place, on which only clusters with endpoints of their own depend, so that more proxies share the
    others."""
    return OutboundFacet(
        type=outbound.type,
        scope=outbound.scope,
        features=outbound.features,
        reach=ReachFacet(cluster_id="", ipv4=outbound.reach.ipv4, ipv6=outbound.reach.ipv6),
        labels=outbound.labels,
        tls_files=outbound.tls_files,
        secret_servers=outbound.secret_servers,
        preserve_case=outbound.preserve_case,
    )


@lru_cache(maxsize=PARTS_KEPT)
def without_scope(outbound: OutboundFacet) -> OutboundFacet:
    """Returns the facet without its scope, on which nothing depends any more once it is known which clusters there are and which rules they
    follow, so that proxies of many namespaces share them."""
    return msgspec.structs.replace(outbound, scope=ScopeFacet(""))


def ip_families(ips: tuple[str, ...]) -> tuple[bool, bool]:
    """Returns whether the addresses of a proxy have IPv4, and whether they have IPv6."""
    six = [":" in ip for ip in ips]
    return False in six, True in six


@lru_cache(maxsize=PARTS_KEPT)
def inbound_traits(inbound: InboundFacet) -> ClusterTraitsKey:
    """Returns the traits of a sidecar's inbound side."""
    four, six = ip_families(inbound.ips)
    listening = inbound.listening
    case = bool(listening.headers.preserve_http1_header_case)
    return ClusterTraitsKey(NodeType.SIDECAR, listening.features.metadata_exchange, False, four, six, case)
