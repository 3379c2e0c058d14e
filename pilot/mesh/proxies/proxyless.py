"""A gRPC client or server without a proxy, taken apart into the facets that its resources are computed from."""

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
"""The value of the node's metadata GENERATOR that such a client announces."""


class ProxylessFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The clients that resolve names alike: what they see, and the DNS domain that short names are of."""

    outbound: OutboundFacet
    dns_domain: str = ""


def is_proxyless(proxy: Proxy) -> bool:
    """Returns whether what is connected is gRPC's own client."""
    return proxy.text("GENERATOR") == GENERATOR


@derived
def proxyless_facet(db: Mesh, node_id: str) -> ProxylessFacet:
    """Returns what the resources of a client depend on. It finds all endpoints by EDS, as a router does."""
    outbound = msgspec.structs.replace(outbound_facet(db, node_id), type=NodeType.ROUTER, no_hbone=True)
    return ProxylessFacet(outbound, find_proxy(db, node_id).dns_domain)


def find_service_named(db: Mesh, name: str, client: ProxylessFacet) -> ImportKey | None:
    """Returns the service that a client means by a host name, which may be short as in DNS. No node of its own."""
    lowered = name.lower().removesuffix(".")
    for host in (lowered, f"{lowered}.{client.dns_domain}", *_by_suffix(lowered, client.dns_domain)):
        if (found := imported(db, client.outbound.scope, host)) is not None:
            return found
    return None


def _by_suffix(name: str, dns_domain: str) -> tuple[str, ...]:
    """Returns the whole names of `web.shop` and `web.shop.svc`, for a client of any namespace."""
    _, mark, suffix = dns_domain.partition(".svc.")
    return (f"{name}.svc.{suffix}", f"{name}.{suffix}") if mark else ()
