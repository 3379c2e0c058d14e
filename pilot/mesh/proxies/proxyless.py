"""Computes the facets of a proxyless gRPC client or server."""

from __future__ import annotations

import msgspec

from pilot.derive import derived
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.proxies.classify import outbound_facet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy
from pilot.mesh.traffic.imports import ImportKey, imported

GENERATOR = "grpc"
"""Value of the node metadata GENERATOR for proxyless gRPC."""


class ProxylessFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The outbound facet of a client, and the DNS domain of short names. Clients with equal facets resolve names
    equally."""

    outbound: OutboundFacet
    dns_domain: str = ""


def is_proxyless(proxy: Proxy) -> bool:
    """Return whether the node is a proxyless gRPC client or server."""
    return proxy.text("GENERATOR") == GENERATOR


@derived
def proxyless_facet(db: Mesh, node_id: str) -> ProxylessFacet:
    """Return the facet of a proxyless client. Like a router, it receives the endpoints of all services over EDS."""
    outbound = msgspec.structs.replace(outbound_facet(db, node_id), type=NodeType.ROUTER, no_hbone=True)
    return ProxylessFacet(outbound, find_proxy(db, node_id).dns_domain)


def find_service_named(db: Mesh, name: str, client: ProxylessFacet) -> ImportKey | None:
    """Return the service with a host name, which may be a short DNS name, or None if there is none. Not memoised."""
    lowered = name.lower().removesuffix(".")
    for host in (lowered, f"{lowered}.{client.dns_domain}", *_by_suffix(lowered, client.dns_domain)):
        if (target := imported(db, client.outbound.scope, host)) is not None:
            return target
    return None


def _by_suffix(name: str, dns_domain: str) -> tuple[str, ...]:
    """Return the full names of short names such as `web.shop` and `web.shop.svc`, which do not depend on the client's
    namespace."""
    _, mark, suffix = dns_domain.partition(".svc.")
    return (f"{name}.svc.{suffix}", f"{name}.{suffix}") if mark else ()
