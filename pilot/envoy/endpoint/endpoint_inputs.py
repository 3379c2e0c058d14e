"""Derives the inputs that are needed to build a cluster's endpoints."""

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
from pilot.mesh.model.ambient_features import sends_hbone, serves_waypoints, uses_double_hbone
from pilot.mesh.model.endpoint import Endpoint
from pilot.mesh.model.facets import OutboundFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.model.service import Service
from pilot.mesh.proxies.placement import placement
from pilot.mesh.registry.clusterset import endpoint_visibility
from pilot.mesh.registry.networks import all_network_gateways
from pilot.mesh.security.mtls import mtls_mode
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


@hub
def mesh_locality_settings(db: Mesh) -> MeshLocalitySettings:
    """Return the locality settings of this mesh."""
    mesh = mesh_config(db)
    return MeshLocalitySettings(mesh.locality_lb_setting, mesh.zone_aware_lb_setting, mesh.default_traffic_policy)


def endpoint_policy(db: Mesh, destination: ClusterDestination, inline: bool) -> EndpointPolicy:
    """Return the policy for a cluster's endpoints. `inline` is set if the cluster contains them. Not memoised."""
    settings = db.settings
    unhealthy = UnhealthySettings(
        settings.clusters.send_unhealthy_endpoints, settings.clusters.always_send_unhealthy_endpoints
    )
    return build_endpoint_policy(
        destination, mesh_locality_settings(db), inline, unhealthy, endpoint_visibility(db, destination.service)
    )


def originates_tunnels(db: Mesh, outbound: OutboundFacet) -> bool:
    """Return whether a client originates tunnels to endpoints that accept them. Not memoised."""
    ambient = db.settings.ambient
    allowed = serves_waypoints(ambient) if outbound.type is NodeType.WAYPOINT else sends_hbone(ambient)
    return allowed and outbound.features.internal_listeners and not outbound.no_hbone


def _cross_network(db: Mesh, outbound: OutboundFacet) -> CrossNetwork:
    if not uses_double_hbone(db.settings.ambient) or outbound.type is NodeType.SIDECAR:
        return "sni"
    return "hbone" if outbound.double_hbone else "none"


def is_location_independent(db: Mesh, outbound: OutboundFacet) -> bool:
    """Return whether all clients in a Kubernetes cluster receive the same endpoints. Not memoised."""
    relevant = placement(db)
    return not (
        relevant.locality
        or relevant.node
        or relevant.network
        or outbound.location.networks
        or _cross_network(db, outbound) != "sni"
    )


def client_location(db: Mesh, policy: EndpointPolicy, outbound: OutboundFacet) -> ClientLocationKey:
    """Return the location of a client, with only the fields that affect the endpoints under a policy. Not memoised."""
    cross_network = _cross_network(db, outbound)
    multi_network = bool(all_network_gateways(db).gateways) or cross_network != "sni"
    return build_client_location(policy, outbound, multi_network, originates_tunnels(db, outbound), cross_network)


def lb_endpoint_options(db: Mesh, service: Service) -> LbEndpointOptions:
    """Return the options for a service's endpoints. Not memoised."""
    settings = db.settings
    labels = dict(service.labels) if settings.registry.label_external_services and service.mesh_external else {}
    return LbEndpointOptions(
        settings.telemetry.cluster_label and settings.telemetry.endpoint_label,
        settings.registry.dual_stack,
        settings.registry.draining_label,
        (labels.get(CANONICAL_NAME, ""), labels.get(CANONICAL_REVISION, "")),
        service.namespace if settings.registry.label_external_services and service.mesh_external else "",
    )


def uses_mtls(db: Mesh, e: Endpoint, policy: EndpointPolicy) -> bool:
    """Return whether to connect to an endpoint with mesh mTLS.

    The DestinationRule takes precedence. Without one, the workload must accept mTLS, and its mTLS mode must not be
    DISABLE.
    """
    if policy.mtls is not None:
        return policy.mtls
    return e.tls_mode == "istio" and mtls_mode(db, e.namespace, e.labels, e.port) != "DISABLE"
