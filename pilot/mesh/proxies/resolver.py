"""A proxy, as far as the addresses depend on it that names are answered with."""

from __future__ import annotations

import msgspec

from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet
from pilot.mesh.registry.workloads import proxy_network
from pilot.mesh.tables.clusters import cluster_of
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


class ResolverFacet(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """All of a proxy that the addresses of a host may depend on. `cluster_id` and `network` are where it runs, "" for an unknown network;
    with `all_clusters` the pods of headless services are answered that run in other clusters, too."""

    families: AddressFamiliesFacet = AddressFamiliesFacet()
    cluster_id: str = ""
    network: str = ""
    all_clusters: bool = True

    def reaches(self, endpoint: Endpoint) -> bool:
        """Returns whether the proxy and an endpoint are in one network, as far as both are known."""
        return not self.network or not endpoint.network or self.network == endpoint.network


def resolver_facet(db: Mesh, node_id: str, families: AddressFamiliesFacet) -> ResolverFacet:
    """Returns what the names of a proxy depend on, which uses these addresses of services. No node of its own."""
    everywhere = db.settings.registry.multicluster_headless
    cluster, network = cluster_of(db, find_proxy(db, node_id)), proxy_network(db, node_id)
    return ResolverFacet(families=families, cluster_id=cluster, network=network, all_clusters=everywhere)
