"""Lists the endpoints of a proxy's own workload, for those that ask for them."""

from __future__ import annotations

from pilot.model.inputs import Mesh
from pilot.model.views.proxies import find_proxy
from pilot.model.views.service_targets import SELF_DISCOVERY, siblings_key
from pilot.translate.endpoint.local_cluster import local_cluster
from pilot.translate.profile.plan import Group


def own_endpoints(db: Mesh, node_id: str) -> tuple[Group, ...]:
    """Returns their group, or none. No node of its own."""
    if not find_proxy(db, node_id).flag(SELF_DISCOVERY):
        return ()
    found = siblings_key(db, node_id)
    return (Group(local_cluster, (found,)),) if found is not None else ()
