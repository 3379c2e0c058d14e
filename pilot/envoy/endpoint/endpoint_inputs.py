"""Derives what of the mesh one cluster's endpoints are made by."""

from __future__ import annotations

from pilot.derive import hub
from pilot.envoy.cluster.cluster_builder import ClusterDestination
from pilot.envoy.endpoint.client_location import ClientLocationKey, CrossNetwork, build_client_location
from pilot.envoy.endpoint.endpoint_policy import (
    EndpointPolicy,
    MeshLocalitySettings,
    UnhealthySettings,
    build_endpoint_policy,
)
from pilot.envoy.endpoint.lb_endpoint import LbEndpointOptions
from pilot.lib.labels import CANONICAL_NAME, CANONICAL_REVISION
from pilot.mesh.model.ambient import crosses_networks, sends_hbone, serves_waypoints
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Service
from pilot.mesh.proxies.placement import placement
from pilot.mesh.registry.clusterset import bounds
from pilot.mesh.registry.networks import all_network_gateways
from pilot.mesh.security.mtls import mtls_mode
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def mesh_locality_settings(db: Mesh) -> MeshLocalitySettings:
    """Returns what this mesh says of balancing."""
    mesh = mesh_config(db)
    return MeshLocalitySettings(mesh.locality_lb_setting, mesh.zone_aware_lb_setting, mesh.default_traffic_policy)


def endpoint_policy(db: Mesh, to: ClusterDestination, inline: bool) -> EndpointPolicy:
    """Returns which endpoints a cluster has and how they are arranged. `inline`: it holds them itself. No node of its own."""
    settings = db.settings
    sending = UnhealthySettings(
        settings.clusters.send_unhealthy_endpoints, settings.clusters.always_send_unhealthy_endpoints
    )
    return build_endpoint_policy(to, mesh_locality_settings(db), inline, sending, bounds(db, to.service))


def originates_tunnels(db: Mesh, outbound: OutboundFacet) -> bool:
    """Returns whether a client begins tunnels to endpoints that take them. No node of its own."""
    ambient = db.settings.ambient
    allowed = serves_waypoints(ambient) if outbound.type is NodeType.WAYPOINT else sends_hbone(ambient)
    return allowed and outbound.features.internal_listeners and not outbound.no_hbone


def _ways(db: Mesh, outbound: OutboundFacet) -> CrossNetwork:
    if not crosses_networks(db.settings.ambient) or outbound.type is NodeType.SIDECAR:
        return "sni"
    return "hbone" if outbound.crosses else "none"


def is_location_independent(db: Mesh, outbound: OutboundFacet) -> bool:
    """Returns whether no cluster's endpoints depend on where the client runs, except on its cluster. No node of its own."""
    matters = placement(db)
    return not (
        matters.locality or matters.node or matters.network or outbound.reach.networks or _ways(db, outbound) != "sni"
    )


def client_location(db: Mesh, policy: EndpointPolicy, outbound: OutboundFacet) -> ClientLocationKey:
    """Returns from where a client sees the endpoints of a policy. No node of its own."""
    ways = _ways(db, outbound)
    several = bool(all_network_gateways(db).gateways) or ways != "sni"
    return build_client_location(policy, outbound, several, originates_tunnels(db, outbound), ways)


def lb_endpoint_options(db: Mesh, found: Service) -> LbEndpointOptions:
    """Returns how the endpoints of a service are shown. No node of its own."""
    settings = db.settings
    labels = dict(found.labels) if settings.registry.label_external_services and found.mesh_external else {}
    return LbEndpointOptions(
        settings.telemetry.cluster_label and settings.telemetry.endpoint_label,
        settings.registry.dual_stack,
        settings.registry.draining_label,
        (labels.get(CANONICAL_NAME, ""), labels.get(CANONICAL_REVISION, "")),
        found.namespace if settings.registry.label_external_services and found.mesh_external else "",
    )


def uses_mtls(db: Mesh, e: Endpoint, policy: EndpointPolicy) -> bool:
    """Returns whether mesh mTLS is used to an endpoint: by the rule, else where its workload takes it and no policy there is against it."""
    if policy.mtls is not None:
        return policy.mtls
    return e.tls_mode == "istio" and mtls_mode(db, e.namespace, e.labels, e.port) != "DISABLE"
