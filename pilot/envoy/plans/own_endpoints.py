"""Lists the endpoints of a proxy's own workload, for those that ask for them."""

from __future__ import annotations

from pilot.envoy.endpoint.local_cluster import local_cluster
from pilot.envoy.plans.plan import Group
from pilot.mesh.registry.service_targets import SELF_DISCOVERY, siblings_key
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy


def own_endpoints(db: Mesh, node_id: str) -> tuple[Group, ...]:
    """Returns their group, or none. No node of its own."""
    if not find_proxy(db, node_id).flag(SELF_DISCOVERY):
        return ()
    found = siblings_key(db, node_id)
    return (Group(local_cluster, (found,)),) if found is not None else ()
