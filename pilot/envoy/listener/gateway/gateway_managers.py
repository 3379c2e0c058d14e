"""The HTTP connection managers and TCP routes for the filter chains of a gateway."""

from __future__ import annotations

from envoy.config.core.v3 import protocol_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import RouteDestination
from pilot.derive import derived
from pilot.envoy.cluster.stat_name import build_stat_name
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.envoy.listener.manager_template import ManagerKey, manager_template, tracing_fields
from pilot.envoy.network_filter.tcp_proxy import TcpRoute, tcp_settings
from pilot.envoy.route.gateway.gateway_route_sources import destination_service
from pilot.envoy.route.route_destination import destination_cluster
from pilot.mesh.model.service import Port, ServiceRef
from pilot.mesh.proxies.router import GatewayListenersFacet, TopologyFacet
from pilot.mesh.registry.service_lookup import visible_service
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule

Manager = hcm_pb2.HttpConnectionManager


# -- HTTP --------------------------------------------------------------------------------------------------------------


@derived
def manager(db: Mesh, facet: GatewayListenersFacet, kind: ManagerKey, port: int) -> bytes:
    """Return a serialized HTTP connection manager, to which the statistics prefix and the routes must be appended.

    `port` is a result of `extension_port`.
    """
    template = manager_template(db, kind, facet.listening, port)
    return template + build_topology(facet.topology) + tracing_fields(db, facet.listening, facet.tags, facet.scope)


def build_topology(topology: TopologyFacet) -> bytes:
    """Return the serialized fields of an HTTP connection manager that determine which hops may identify the client.

    The details of the client certificate are only configured if the gateway itself adds them to the
    X-Forwarded-Client-Cert header.
    """
    fields = Manager(
        xff_num_trusted_hops=topology.trusted_proxies,
        forward_client_cert_details=Manager.ForwardClientCertDetails.Value(topology.forward_client_cert),
        http_protocol_options=protocol_pb2.Http1ProtocolOptions(),
    )
    if topology.forward_client_cert in ("APPEND_FORWARD", "SANITIZE_SET"):
        details = Manager.SetCurrentClientCertDetails(
            subject=wrappers_pb2.BoolValue(value=True), cert=True, dns=True, uri=True
        )
        fields.set_current_client_cert_details.CopyFrom(details)
    return bytes(fields.SerializeToString(deterministic=True))


# -- TCP ---------------------------------------------------------------------------------------------------------------


def tcp_route(
    db: Mesh, routes: tuple[RouteDestination, ...], port: Port, name: str, facet: GatewayListenersFacet
) -> TcpRoute | None:
    """Return the destination of a TCP or TLS rule, or None if there are several destinations and none has a weight.

    `port` is the server's port, which applies to destinations without a port. If there are several destinations, the
    statistics prefix is `name`.
    """
    viewer, idle = facet.scope.namespace, facet.listening.idle_timeout
    first = routes[0].destination
    ref = visible_service(db, first.host, viewer) if first is not None else None
    rule = destination_rule(db, facet.scope, ref, facet.labels) if ref is not None else None
    spec = rule.spec if rule is not None else None
    if len(routes) > 1:
        clusters = tuple((_cluster(db, route, port, viewer), route.weight) for route in routes if route.weight)
        return TcpRoute(name, clusters, weighted=True, settings=tcp_settings(spec, "", idle)) if clusters else None
    cluster, subset = _cluster(db, routes[0], port, viewer), first.subset if first is not None else ""
    counted = stat_prefix(db, ref, port, subset) if ref is not None else ""
    return TcpRoute(counted or cluster, ((cluster, 0),), settings=tcp_settings(spec, subset, idle))


def stat_prefix(db: Mesh, ref: ServiceRef, port: Port, subset: str) -> str:
    """Return the statistics prefix that the mesh config defines for a service's clusters, or "" if it defines none."""
    pattern = listener_defaults(db).outbound_stat_name
    row = service(db, ref) if pattern else None
    return build_stat_name(pattern, row, port, subset) if row is not None else ""


def _cluster(db: Mesh, route: RouteDestination, port: Port, viewer: str) -> str:
    ref = visible_service(db, route.destination.host, viewer) if route.destination is not None else None
    return destination_cluster(
        route.destination, destination_service(db, ref) if ref is not None else None, port.number
    )
