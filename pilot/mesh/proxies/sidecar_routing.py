"""The facet of a sidecar's outbound routes."""

from __future__ import annotations

import msgspec

from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.proxies.classify import listening_facet, outbound_facet, uses_auto_addresses
from pilot.mesh.tables.clusters import preferred_cluster
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


class SidecarRoutesFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The properties of a sidecar that its outbound routes may depend on.

    - `labels`: as in `OutboundFacet`.
    - `dns_domain`: "<namespace>.svc.<suffix>", which determines the short names in the domains of virtual hosts.
    """

    scope: ScopeFacet
    labels: Labels = frozenset()
    dns_domain: str = ""
    families: AddressFamiliesFacet = AddressFamiliesFacet()
    attempt_count: bool = True  # send the attempt count to upstreams
    forwarded_host: bool = False  # send the original host in X-Forwarded-Host if it is rewritten


def sidecar_routes_facet(db: Mesh, node_id: str) -> SidecarRoutesFacet:
    """Return the facet of a sidecar's outbound routes. Not memoised."""
    proxy, outbound, listens = find_proxy(db, node_id), outbound_facet(db, node_id), listening_facet(db, node_id)
    headers = listens.headers
    return SidecarRoutesFacet(
        scope=outbound.scope,
        labels=outbound.labels,
        dns_domain=proxy.dns_domain,
        families=AddressFamiliesFacet(
            ipv4=listens.ipv4,
            ipv6=listens.ipv6,
            dual=listens.ipv4 and listens.ipv6 and db.settings.registry.dual_stack,
            auto=uses_auto_addresses(proxy, db.settings.registry.ip_autoallocate),
            cluster=preferred_cluster(db, proxy),
        ),
        attempt_count=not (headers.attempt_count is not None and headers.attempt_count.disabled),
        forwarded_host=bool(headers.x_forwarded_host is not None and headers.x_forwarded_host.enabled),
    )
