"""The facet of a proxy that determines the addresses in DNS answers."""

from __future__ import annotations

import msgspec

from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.registry.workloads import proxy_network
from pilot.mesh.tables.clusters import cluster_of
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


class ResolverFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The properties of a proxy on which the DNS answer for a host may depend.

    `network` is "" if it is unknown. `all_clusters` says whether answers for headless services include Pods in other
    clusters.
    """

    families: AddressFamiliesFacet = AddressFamiliesFacet()
    cluster_id: str = ""
    network: str = ""
    all_clusters: bool = True

    def reaches(self, endpoint: Endpoint) -> bool:
        """Return whether the proxy and an endpoint are in the same network. An unknown network matches any network."""
        return not self.network or not endpoint.network or self.network == endpoint.network


def resolver_facet(db: Mesh, node_id: str, families: AddressFamiliesFacet) -> ResolverFacet:
    """Return the resolver facet of a proxy with these address families. Not memoised."""
    everywhere = db.settings.registry.multicluster_headless
    cluster, network = cluster_of(db, find_proxy(db, node_id)), proxy_network(db, node_id)
    return ResolverFacet(families=families, cluster_id=cluster, network=network, all_clusters=everywhere)
