"""Builds what a gateway's filter chains do: their HTTP connection managers, and where their TCP proxies lead."""

from __future__ import annotations

from envoy.config.core.v3 import protocol_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import RouteDestination
from pilot.derive import derived
from pilot.envoy.cluster.stat_name import build_stat_name
from pilot.envoy.listener.listener_options import listener_defaults
from pilot.envoy.listener.manager_template import ManagerKey, http_template_of, tracing_part
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


# -- HTTP ------------------------------------------------------------------------------------------------------------------


@derived
def manager(db: Mesh, front: GatewayListenersFacet, kind: ManagerKey, port: int) -> bytes:
    """Returns the connection manager of a router, serialized, without statistics prefix and routes: protobuf merges these in.

    `port`: as in `extension_port`.
    """
    template = http_template_of(db, kind, front.listening, port)
    return template + build_topology(front.topology) + tracing_part(db, front.listening, front.tags, front.scope)


def build_topology(topology: TopologyFacet) -> bytes:
    """Returns the part of a manager that says whose word is taken on where requests come from, serialized.

    What a client's certificate says is passed on only where ours counts.
    """
    built = Manager(
        xff_num_trusted_hops=topology.trusted_proxies,
        forward_client_cert_details=Manager.ForwardClientCertDetails.Value(topology.forward_client_cert),
        http_protocol_options=protocol_pb2.Http1ProtocolOptions(),
    )
    if topology.forward_client_cert in ("APPEND_FORWARD", "SANITIZE_SET"):
        details = Manager.SetCurrentClientCertDetails(
            subject=wrappers_pb2.BoolValue(value=True), cert=True, dns=True, uri=True
        )
        built.set_current_client_cert_details.CopyFrom(details)
    return bytes(built.SerializeToString(deterministic=True))


# -- TCP -------------------------------------------------------------------------------------------------------------------


def tcp_route(
    db: Mesh, to: tuple[RouteDestination, ...], port: Port, name: str, front: GatewayListenersFacet
) -> TcpRoute | None:
    """Returns where a TCP or TLS rule leads; None where no destination has any weight.

    `port`: of the server, for destinations without one of their own. Several destinations are counted together, under `name`.
    """
    viewer, idle = front.scope.namespace, front.listening.idle_timeout
    first = to[0].destination
    ref = visible_service(db, first.host, viewer) if first is not None else None
    rule = destination_rule(db, front.scope, ref, front.labels) if ref is not None else None
    spec = rule.spec if rule is not None else None
    if len(to) > 1:
        clusters = tuple((_cluster(db, d, port, viewer), d.weight) for d in to if d.weight)
        return TcpRoute(name, clusters, weighted=True, settings=tcp_settings(spec, "", idle)) if clusters else None
    cluster, subset = _cluster(db, to[0], port, viewer), first.subset if first is not None else ""
    counted = stat_prefix(db, ref, port, subset) if ref is not None else ""
    return TcpRoute(counted or cluster, ((cluster, 0),), settings=tcp_settings(spec, subset, idle))


def stat_prefix(db: Mesh, ref: ServiceRef, port: Port, subset: str) -> str:
    """Returns how the mesh config wants the clusters of a service to be called in metrics, "" where it does not say."""
    pattern = listener_defaults(db).outbound_stat_name
    found = service(db, ref) if pattern else None
    return build_stat_name(pattern, found, port, subset) if found is not None else ""


def _cluster(db: Mesh, to: RouteDestination, port: Port, viewer: str) -> str:
    ref = visible_service(db, to.destination.host, viewer) if to.destination is not None else None
    return destination_cluster(to.destination, destination_service(db, ref) if ref is not None else None, port.number)
