"""The network filters of a gateway's filter chains: HTTP connection managers, and TCP proxies."""
from __future__ import annotations

from envoy.config.core.v3 import protocol_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import wrappers_pb2

from pilot.derive import derived
from pilot.model.config.virtual_service import RouteDestination
from pilot.model.inputs import Mesh
from pilot.model.service import Port, Protocol, ServiceRef
from pilot.model.views.destination_rules import destination_rule
from pilot.model.views.jwt import jwt_rules
from pilot.model.views.router import Front, Topology
from pilot.model.views.services import service
from pilot.translate.access_log import build_tcp_access_logs
from pilot.translate.cluster.stat_name import build_stat_name
from pilot.translate.listener.defaults import listener_defaults
from pilot.translate.listener.http import HttpClass, http_template, over_rds, tracing_part
from pilot.translate.network_filter import http_connection_manager
from pilot.translate.network_filter.metadata_exchange import build_metadata_exchange
from pilot.translate.network_filter.mongo_proxy import build_mongo_proxy
from pilot.translate.network_filter.mysql_proxy import build_mysql_proxy
from pilot.translate.network_filter.redis_proxy import build_redis_proxy
from pilot.translate.network_filter.tcp_proxy import TcpRoute, build_tcp_proxy, tcp_settings
from pilot.translate.route.destination import cluster_of
from pilot.translate.route.gateway_sources import service_in_sight, target_of
from pilot.translate.typed import TYPE_PREFIX

Manager = hcm_pb2.HttpConnectionManager


# -- HTTP ------------------------------------------------------------------------------------------------------------------

@derived
def manager(db: Mesh, front: Front, grpc_web: bool, http3: bool) -> bytes:
    """The connection manager of a router, serialized, without statistics prefix and routes: protobuf merges these in."""
    jwt = jwt_rules(db, front.scope.namespace, front.policies)
    template = http_template(db, HttpClass(side="gateway", grpc_web=grpc_web, http3=http3, jwt=jwt), front.listening)
    return template + build_topology(front.topology) + tracing_part(db, front.listening, front.tags)


def build_topology(topology: Topology) -> bytes:
    """A part of a manager: whose word is taken on where requests come from.

    What a client's certificate says is passed on only where ours counts.
    """
    built = Manager(
        xff_num_trusted_hops=topology.trusted_proxies,
        forward_client_cert_details=Manager.ForwardClientCertDetails.Value(topology.forward_client_cert),
        http_protocol_options=protocol_pb2.Http1ProtocolOptions(),
    )
    if topology.forward_client_cert in ("APPEND_FORWARD", "SANITIZE_SET"):
        details = Manager.SetCurrentClientCertDetails(subject=wrappers_pb2.BoolValue(value=True), cert=True, dns=True, uri=True)
        built.set_current_client_cert_details.CopyFrom(details)
    return bytes(built.SerializeToString(deterministic=True))


def build_http_filter(template: bytes, stat_prefix: str, routes: str) -> listener_components_pb2.Filter:
    """The manager of one filter chain, with routes over ADS."""
    out = listener_components_pb2.Filter(name=http_connection_manager.NAME)
    out.typed_config.type_url = TYPE_PREFIX + Manager.DESCRIPTOR.full_name
    out.typed_config.value = template + over_rds(stat_prefix, routes)
    return out


# -- TCP -------------------------------------------------------------------------------------------------------------------

def tcp_route(db: Mesh, to: tuple[RouteDestination, ...], port: Port, name: str, front: Front) -> TcpRoute | None:
    """Where a TCP or TLS rule leads; None where no destination has any weight.

    `port`: of the server, for destinations without one of their own. Several destinations are counted together, under `name`.
    """
    viewer, idle = front.scope.namespace, front.listening.idle_timeout
    first = to[0].destination
    ref = service_in_sight(db, first.host, viewer) if first is not None else None
    rule = destination_rule(db, front.scope, ref, front.labels) if ref is not None else None
    spec = rule.spec if rule is not None else None
    if len(to) > 1:
        clusters = tuple((_cluster(db, d, port, viewer), d.weight) for d in to if d.weight)
        return TcpRoute(name, clusters, weighted=True, settings=tcp_settings(spec, "", idle)) if clusters else None
    cluster, subset = _cluster(db, to[0], port, viewer), first.subset if first is not None else ""
    counted = stat_prefix(db, ref, port, subset) if ref is not None else ""
    return TcpRoute(counted or cluster, ((cluster, 0),), settings=tcp_settings(spec, subset, idle))


def stat_prefix(db: Mesh, ref: ServiceRef, port: Port, subset: str) -> str:
    """How the mesh config wants the clusters of a service to be called in metrics, "" where it does not say."""
    pattern = listener_defaults(db).outbound_stat_name
    found = service(db, ref) if pattern else None
    return build_stat_name(pattern, found, port, subset) if found is not None else ""


def _cluster(db: Mesh, to: RouteDestination, port: Port, viewer: str) -> str:
    ref = service_in_sight(db, to.destination.host, viewer) if to.destination is not None else None
    return cluster_of(to.destination, target_of(db, ref) if ref is not None else None, port.number)


def build_tcp_filters(db: Mesh, route: TcpRoute, protocol: Protocol, front: Front, exchange: bool) -> list[listener_components_pb2.Filter]:
    """The filters of a chain of TCP. `exchange`: the client is a proxy of the mesh, which says who it is."""
    exchanges = exchange and db.settings.metadata_exchange and front.listening.features.metadata_exchange
    filters = [build_metadata_exchange(db.settings.metadata_exchange_labels)] if exchanges else []
    cluster = route.clusters[0][0]
    if protocol is Protocol.REDIS and db.settings.redis_filter:
        return [*filters, build_redis_proxy(route.stat_prefix, cluster)]
    if protocol is Protocol.MONGO and db.settings.mongo_filter:
        filters.append(build_mongo_proxy(route.stat_prefix))
    elif protocol is Protocol.MYSQL and db.settings.mysql_filter:
        filters.append(build_mysql_proxy(route.stat_prefix))
    return [*filters, build_tcp_proxy(route, build_tcp_access_logs(listener_defaults(db).access_logs))]
