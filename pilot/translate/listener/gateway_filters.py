"""The network filters of a gateway's filter chains: HTTP connection managers, and TCP proxies."""
from __future__ import annotations

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
from pilot.translate.access_log import build_http_access_logs, build_tcp_access_logs
from pilot.translate.cluster.stat_name import build_stat_name
from pilot.translate.http_filter.chain import FilterOptions, build_http_filters
from pilot.translate.http_filter.jwt_authn import build_jwt_authn
from pilot.translate.listener.defaults import internal_networks, listener_defaults
from pilot.translate.network_filter import http_connection_manager
from pilot.translate.network_filter.http_connection_manager import HttpOptions, build_http_connection_manager, rds
from pilot.translate.network_filter.metadata_exchange import build_metadata_exchange
from pilot.translate.network_filter.mongo_proxy import build_mongo_proxy
from pilot.translate.network_filter.mysql_proxy import build_mysql_proxy
from pilot.translate.network_filter.redis_proxy import build_redis_proxy
from pilot.translate.network_filter.tcp_proxy import TcpRoute, build_tcp_proxy, tcp_settings
from pilot.translate.route.destination import cluster_of
from pilot.translate.route.gateway_sources import service_in_sight, target_of
from pilot.translate.tracing import build_tracing

Manager = hcm_pb2.HttpConnectionManager


# -- HTTP ------------------------------------------------------------------------------------------------------------------

@derived
def manager(db: Mesh, front: Front, grpc_web: bool, http3: bool) -> bytes:
    """The connection manager of a router, serialized, without statistics prefix and routes: protobuf merges these in."""
    defaults, listening, settings = listener_defaults(db), front.listening, db.settings
    headers, exchange = listening.headers, listening.headers.metadata_exchange_headers
    options = HttpOptions(
        side="gateway",
        headers=headers,
        connections=listening.connections,
        normalization=defaults.normalization,
        http10=listening.http10,
        http3=http3,
        idle_timeout=listening.idle_timeout,
        use_remote_address=True,
        continue_100=settings.continue_100,
        internal_networks=internal_networks(db),
    )
    filters = FilterOptions(
        side="gateway",
        features=listening.features,
        metadata_exchange=settings.metadata_exchange,
        labels=settings.metadata_exchange_labels,
        mesh_only=exchange is not None and exchange.mode == "IN_MESH",
        alpn=settings.alpn_filter,
        sessions=settings.persistent_sessions,
        grpc_web=grpc_web,
        suppress_envoy_headers=headers.envoy_debug_headers is not None and bool(headers.envoy_debug_headers.disabled),
    )
    rules = jwt_rules(db, front.scope.namespace, front.policies)
    authn = [build_jwt_authn(rules, clear_route_cache=True)] if rules else []
    built = build_http_connection_manager(options, build_http_filters(filters, authn), build_http_access_logs(defaults.access_logs))
    built.http_protocol_options.SetInParent()
    set_topology(built, front.topology)
    if listening.tracing is not None:
        built.tracing.CopyFrom(build_tracing(listening.tracing, front.tags))
    return bytes(built.SerializeToString(deterministic=True))


def set_topology(built: hcm_pb2.HttpConnectionManager, topology: Topology) -> None:
    """Whose word is taken on where a request comes from. What a client's certificate says is passed on only where ours counts."""
    built.xff_num_trusted_hops = topology.trusted_proxies
    built.forward_client_cert_details = Manager.ForwardClientCertDetails.Value(topology.forward_client_cert)
    if topology.forward_client_cert in ("APPEND_FORWARD", "SANITIZE_SET"):
        details = Manager.SetCurrentClientCertDetails(subject=wrappers_pb2.BoolValue(value=True), cert=True, dns=True, uri=True)
        built.set_current_client_cert_details.CopyFrom(details)


def build_http_filter(template: bytes, stat_prefix: str, routes: str) -> listener_components_pb2.Filter:
    """The manager of one filter chain, with routes over ADS."""
    own = Manager(stat_prefix=stat_prefix, rds=rds(routes))
    out = listener_components_pb2.Filter(name=http_connection_manager.NAME)
    out.typed_config.type_url = f"type.googleapis.com/{Manager.DESCRIPTOR.full_name}"
    out.typed_config.value = template + own.SerializeToString(deterministic=True)
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
