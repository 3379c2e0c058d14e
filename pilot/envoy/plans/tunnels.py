"""Lists what tunnels of HBONE need at proxies of any kind: where they begin, where they end, and the way into other networks."""

from __future__ import annotations

from pilot.envoy.cluster.hbone_clusters import crossing_clusters, originating_clusters, terminating_clusters
from pilot.envoy.endpoint.endpoint_inputs import begins_tunnels
from pilot.envoy.listener.connect_originate import crossing_listeners, originating_listeners, originator_key
from pilot.envoy.listener.connect_terminate import terminating_listeners
from pilot.envoy.listener.inbound_hbone import tunnelled_listeners
from pilot.envoy.plans.plan import Group
from pilot.mesh.model.facets import InboundFacet, ListeningFacet, OutboundFacet, PolicyFacet
from pilot.mesh.tables.database import Mesh


def originating_cluster_groups(db: Mesh, outbound: OutboundFacet) -> tuple[Group, ...]:
    """Returns the clusters of a sidecar or gateway where tunnels begin, none where it sends no HBONE. No node of its own."""
    if not begins_tunnels(db, outbound):
        return ()
    return Group(originating_clusters, ()), *((Group(crossing_clusters, ()),) if outbound.crosses else ())


def originating_listener_groups(
    db: Mesh, outbound: OutboundFacet, listening: ListeningFacet, network: str = ""
) -> tuple[Group, ...]:
    """Returns the listeners of a sidecar or gateway where tunnels begin, none where it sends no HBONE. No node of its own."""
    if not begins_tunnels(db, outbound):
        return ()
    key = originator_key(listening)
    return Group(originating_listeners, (key,)), *(
        (Group(crossing_listeners, (key, network)),) if outbound.crosses else ()
    )


def terminating_cluster_groups(inbound: InboundFacet) -> tuple[Group, ...]:
    """Returns the clusters of a sidecar that takes HBONE."""
    return (Group(terminating_clusters, ()),) if inbound.takes_hbone else ()


def terminating_listener_groups(db: Mesh, inbound: InboundFacet) -> tuple[Group, ...]:
    """Returns the listeners of a sidecar that takes HBONE. No node of its own."""
    if not inbound.takes_hbone:
        return ()
    layered = inbound.listening.policies if db.settings.ambient.layered_policies else PolicyFacet()
    return Group(terminating_listeners, (inbound.listening, layered, False)), Group(tunnelled_listeners, (inbound,))
