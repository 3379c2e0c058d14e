"""Groups of resources that several kinds of proxies have in common."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.derive import derived
from pilot.envoy.agent_resources import trusted_roots
from pilot.envoy.cluster.cluster_traits import without_location
from pilot.envoy.cluster.hbone_clusters import double_hbone_clusters, originating_clusters, terminating_clusters
from pilot.envoy.endpoint.client_location import unlocated_client
from pilot.envoy.endpoint.endpoint_inputs import is_location_independent, originates_tunnels
from pilot.envoy.endpoint.load_assignments import outbound_load_assignments, unlocated_load_assignments
from pilot.envoy.endpoint.local_cluster import local_cluster
from pilot.envoy.extension_config import discovered_extensions
from pilot.envoy.listener.connect_originate import crossing_listeners, originating_listeners, originator_key
from pilot.envoy.listener.connect_terminate import terminating_listeners
from pilot.envoy.listener.inbound.inbound_hbone import tunnelled_listeners
from pilot.envoy.plans.resource_group import Group, NamedGroup, PatchSide
from pilot.envoy.secret import secrets
from pilot.envoy.ztunnel.address_resources import ADDRESSES, WORKLOADS
from pilot.envoy.ztunnel.policy_resources import authorizations, port_policies, strict_policy, waypoint_policies
from pilot.lib.xds_types import ADDRESS, EXTENSION, PROXY_CONFIG, SECRET, WORKLOAD
from pilot.mesh.model.facets import InboundFacet, ListeningFacet, OutboundFacet, PolicyFacet
from pilot.mesh.proxies.extension_reader import extension_reader_facet
from pilot.mesh.registry.service_targets import SELF_DISCOVERY, siblings_key
from pilot.mesh.security.credential_access import credential_reader_facet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy
from pilot.mesh.tables.trust import has_trust_bundle


@derived
def agent_groups(db: Mesh) -> Mapping[str, tuple[Group, ...]]:
    """Return the groups of trusted CA certificates and ambient addresses, which all kinds of proxies receive.

    The certificates are for the agent, and are omitted if the mesh has no trust bundle. Envoy uses the addresses to
    identify peers whose connections carry no identity. The addresses are omitted if ambient mode is disabled.
    """
    roots = {PROXY_CONFIG: (Group(trusted_roots, (), PatchSide.NONE),)} if has_trust_bundle(db) else {}
    return {**roots, **address_groups(db)}


# -- ambient mesh ------------------------------------------------------------------------------------------------------


@derived
def address_groups(db: Mesh) -> Mapping[str, tuple[Group, ...]]:
    """Return the groups of all workloads and services. Every proxy may request them.

    Return an empty mapping if ambient mode is disabled.
    """
    if not db.settings.ambient.enabled:
        return {}
    return {
        ADDRESS: tuple(Group(addresses, (), PatchSide.NONE) for addresses in ADDRESSES),
        WORKLOAD: tuple(Group(workloads, (), PatchSide.NONE) for workloads in WORKLOADS),
    }


@derived
def policy_groups(db: Mesh) -> tuple[Group, ...]:
    """Return the groups of policies that ztunnels enforce. Return () if ambient mode is disabled."""
    if not db.settings.ambient.enabled:
        return ()
    policies = (authorizations, port_policies, strict_policy, waypoint_policies)
    return tuple(Group(fn, (), PatchSide.NONE) for fn in policies)


# -- requested by name -------------------------------------------------------------------------------------------------


def secret_groups(db: Mesh, node_id: str) -> Mapping[str, tuple[NamedGroup, ...]]:
    """Return the groups of secrets that a proxy may request. Not memoised.

    There are no groups until the proxy's access rights are known. Until then, its requests wait.
    """
    reader = credential_reader_facet(db, node_id)
    return {SECRET: (NamedGroup(secrets, (reader,)),)} if reader is not None else {}


def extension_groups(db: Mesh, node_id: str) -> Mapping[str, tuple[NamedGroup, ...]]:
    """Return the groups of extension configurations that a proxy may request. Not memoised."""
    return {EXTENSION: (NamedGroup(discovered_extensions, (extension_reader_facet(db, node_id),)),)}


# -- endpoints ---------------------------------------------------------------------------------------------------------


def outbound_endpoint_group(db: Mesh, outbound: OutboundFacet) -> Group:
    """Return the endpoints of a proxy's outbound clusters. Not memoised.

    If they do not depend on the proxy's location, proxies in all locations share the group.
    """
    if is_location_independent(db, outbound):
        client = unlocated_client(outbound.location.cluster_id, originates_tunnels(db, outbound))
        return Group(unlocated_load_assignments, (without_location(outbound), client), PatchSide.NONE)
    return Group(outbound_load_assignments, (outbound,), PatchSide.NONE)


def local_cluster_groups(db: Mesh, node_id: str) -> tuple[Group, ...]:
    """Return the endpoints of the proxy's own service, if its bootstrap requests them. Not memoised."""
    if not find_proxy(db, node_id).flag(SELF_DISCOVERY):
        return ()
    siblings = siblings_key(db, node_id)
    return (Group(local_cluster, (siblings,), PatchSide.NONE),) if siblings is not None else ()


# -- HBONE tunnels -----------------------------------------------------------------------------------------------------


def originating_cluster_groups(db: Mesh, outbound: OutboundFacet) -> tuple[Group, ...]:
    """Return the clusters through which a sidecar or gateway opens tunnels. Not memoised.

    Return () if the proxy does not originate HBONE tunnels.
    """
    if not originates_tunnels(db, outbound):
        return ()
    crossing = (Group(double_hbone_clusters, (), PatchSide.NONE),) if outbound.double_hbone else ()
    return Group(originating_clusters, (), PatchSide.NONE), *crossing


def originating_listener_groups(
    db: Mesh, outbound: OutboundFacet, listening: ListeningFacet, network: str = ""
) -> tuple[Group, ...]:
    """Return the listeners through which a sidecar or gateway opens tunnels. Not memoised.

    Return () if the proxy does not originate HBONE tunnels.
    """
    if not originates_tunnels(db, outbound):
        return ()
    key = originator_key(listening)
    crossing = (Group(crossing_listeners, (key, network), PatchSide.NONE),) if outbound.double_hbone else ()
    return Group(originating_listeners, (key,), PatchSide.NONE), *crossing


def terminating_cluster_groups(inbound: InboundFacet) -> tuple[Group, ...]:
    """Return the clusters through which a sidecar terminates tunnels. Return () if it does not accept HBONE."""
    return (Group(terminating_clusters, (), PatchSide.NONE),) if inbound.accepts_hbone else ()


def terminating_listener_groups(db: Mesh, inbound: InboundFacet) -> tuple[Group, ...]:
    """Return the listeners through which a sidecar terminates tunnels. Not memoised.

    Return () if the sidecar does not accept HBONE.
    """
    if not inbound.accepts_hbone:
        return ()
    layered = inbound.listening.policies if db.settings.ambient.layered_policies else PolicyFacet()
    return (
        Group(terminating_listeners, (inbound.listening, layered, False), PatchSide.INBOUND),
        Group(tunnelled_listeners, (inbound,), PatchSide.INBOUND),
    )
