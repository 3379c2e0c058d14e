"""Templates for HTTP connection managers: one for each class of HTTP connection managers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_http_access_logs
from pilot.envoy.cluster.endpoint_discovery import lookup_family
from pilot.envoy.filter_phase import Phase
from pilot.envoy.http_filter.dynamic_forward_proxy import (
    build_allow_any_dns_cache,
    build_dns_cache,
    build_dynamic_forward_proxy,
)
from pilot.envoy.http_filter.http_filters import FilterOptions, build_http_filters
from pilot.envoy.listener.access_logging import access_logs
from pilot.envoy.listener.extension_filters import extension_port
from pilot.envoy.listener.listener_options import internal_networks, listener_defaults
from pilot.envoy.listener.listener_parts import serialize_fields
from pilot.envoy.listener.listener_tracing import request_tracing
from pilot.envoy.listener.policy_filters import http_policy_filters
from pilot.envoy.network_filter.http_connection_manager import (
    HttpOptions,
    Manager,
    build_http_connection_manager,
    rds,
)
from pilot.envoy.tracing.request_tracing import build_request_tracing
from pilot.mesh.model.ambient_features import exchanges_baggage
from pilot.mesh.model.facets import ListeningFacet, ScopeFacet, SpanTagsFacet
from pilot.mesh.tables.database import Mesh
from pilot.settings.mesh import MeshSettings


class ManagerKey(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """The key of a class of HTTP connection managers, which only differ in routes, statistics and tracing.

    `forward_proxy` is set if clients send absolute URLs. `dynamic_host` is a wildcard host. The host names that match
    it are resolved for each request. `allow_any` resolves all unknown hosts. `in_tunnel` is set if clients connect
    through a tunnel, so that no metadata is exchanged with them.
    """

    grpc_web: bool = False
    http2: bool = False
    http3: bool = False
    forward_proxy: bool = False
    dynamic_host: str = ""
    allow_any: bool = False
    in_tunnel: bool = False


@derived
def manager_template(db: Mesh, kind: ManagerKey, listening: ListeningFacet, port: int) -> bytes:
    """Return a serialized HTTP connection manager without a statistics prefix, routes or tracing.

    `port` is a result of `extension_port`.
    """
    added = [*http_policy_filters(db, listening, port), *_resolving_filters(db, kind, listening)]
    filters = build_http_filters(_filter_options(db.settings, kind, listening), added)
    logs = build_http_access_logs(access_logs(db, listening))
    template: bytes = build_http_connection_manager(_options(db, kind, listening), filters, logs).SerializeToString(
        deterministic=True
    )
    return template


def manager_template_at(db: Mesh, kind: ManagerKey, listening: ListeningFacet, port: int) -> bytes:
    """Return the template for a port. Not memoised.

    `port` is 0 if no service or Sidecar declares the port.
    """
    return manager_template(db, kind, listening, extension_port(db, listening, port))


def _options(db: Mesh, kind: ManagerKey, listening: ListeningFacet) -> HttpOptions:
    settings, side = db.settings.listeners, listening.side
    use_remote_address = side == "gateway" or (
        side == "outbound" and settings.use_remote_address and not kind.forward_proxy
    )
    return HttpOptions(
        side=side,
        headers=listening.headers,
        connections=listening.connections,
        normalization=listener_defaults(db).normalization,
        http10=listening.http10,
        http2=kind.http2,
        http3=kind.http3,
        absolute_urls=kind.forward_proxy,
        idle_timeout=listening.idle_timeout,
        forwards_identity=listening.forwards_client,
        use_remote_address=use_remote_address,
        continue_100=settings.continue_100,
        internal_networks=internal_networks(db) if settings.hcm_internal_networks or use_remote_address else (),
    )


def _filter_options(settings: MeshSettings, kind: ManagerKey, listening: ListeningFacet) -> FilterOptions:
    headers = listening.headers
    exchange = headers.metadata_exchange_headers
    return FilterOptions(
        side=listening.side,
        features=listening.features,
        metadata_exchange=settings.telemetry.metadata_exchange,
        baggage=exchanges_baggage(settings.ambient),
        labels=settings.telemetry.metadata_exchange_labels,
        mesh_only=exchange is not None and exchange.mode == "IN_MESH" and not kind.forward_proxy,
        alpn=settings.listeners.alpn_filter,
        sessions=settings.listeners.persistent_sessions,
        grpc_web=kind.grpc_web,
        exchanges=not kind.in_tunnel,
        picks_endpoints=listening.has_inference_pools,
        suppress_envoy_headers=bool(headers.envoy_debug_headers is not None and headers.envoy_debug_headers.disabled),
    )


def _resolving_filters(
    db: Mesh, kind: ManagerKey, listening: ListeningFacet
) -> Iterator[tuple[Phase, hcm_pb2.HttpFilter]]:
    """Yield the filters that resolve the host of each request, if the HTTP connection manager serves such hosts."""
    settings = db.settings
    family = lookup_family(
        listening.ipv4, listening.ipv6, settings.registry.dual_stack, settings.listeners.ipv6_only_has_ipv4
    )
    if kind.dynamic_host:
        yield Phase.RESOLUTION, build_dynamic_forward_proxy(build_dns_cache(names.dns_cache(kind.dynamic_host), family))
    if kind.allow_any:
        cache = build_allow_any_dns_cache(family, settings.clusters.dynamic_dns_max_hosts, listening.dns_proxy)
        yield Phase.RESOLUTION, build_dynamic_forward_proxy(cache)


def rds_fields(stat_prefix: str, routes: str) -> bytes:
    """Return the serialized fields to append to the template of an HTTP connection manager that receives routes over
    RDS."""
    fields: bytes = Manager(stat_prefix=stat_prefix, rds=rds(routes)).SerializeToString(deterministic=True)
    return fields


def inline_route_fields(stat_prefix: str, routes: route_pb2.RouteConfiguration) -> bytes:
    """Return the serialized fields to append to the template of an HTTP connection manager that contains its routes."""
    fields: bytes = Manager(stat_prefix=stat_prefix, route_config=routes).SerializeToString(deterministic=True)
    return fields


@derived
def tracing_fields(db: Mesh, listening: ListeningFacet, tags: SpanTagsFacet, scope: ScopeFacet) -> bytes:
    """Return the serialized tracing fields that are appended to the templates of a workload's HTTP connection managers.

    Return b"" if tracing is disabled.
    """
    settings = request_tracing(db, listening, scope)
    return serialize_fields(build_request_tracing(settings, tags)) if settings is not None else b""
