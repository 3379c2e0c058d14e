"""The sidecar listeners that belong to no service: the outbound capture listener, and the HTTP proxy listener."""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.filter_chain import ChainMatch, build_black_hole_chain, build_chain, plaintext_alpns
from pilot.envoy.listener.listener_address import loopbacks, wildcards
from pilot.envoy.listener.listener_filters import HTTP_INSPECTOR
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_options import ListenerOptions, listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble
from pilot.envoy.listener.manager_template import ManagerKey, inline_route_fields, manager_template_at, tracing_fields
from pilot.envoy.listener.outbound.outbound_builder import build_unmatched_filters
from pilot.envoy.listener.outbound.outbound_draft import HttpRoutes, OutboundChainKey, OutboundListenerKey
from pilot.envoy.listener.outbound.outbound_listeners import listener_parts, unmatched_cluster
from pilot.envoy.resource import Resource
from pilot.envoy.route.route_configuration import DIRECT_RESPONSE_BYTES
from pilot.envoy.route.sidecar.catch_all import build_catch_all
from pilot.mesh.model.facets import ListeningFacet, OutboundListenersFacet, SpanTagsFacet
from pilot.mesh.model.virtual_addresses import ANY_IPV4
from pilot.mesh.scope.sidecar_scope import outbound_traffic_policy
from pilot.mesh.tables.database import Mesh

BLACK_HOLE_CHAIN, CATCH_ALL_CHAIN = "virtualOutbound-blackhole", "virtualOutbound-catchall-tcp"
NO_LISTENERS: Mapping[str, Resource] = {}


@derived
def virtual_outbound_parts(db: Mesh, facet: OutboundListenersFacet) -> ListenerParts:
    """Return the capture listener.

    It passes a captured connection to the listener for the connection's destination. If there is none, the outbound
    traffic policy applies.
    """
    listening = facet.listening
    options, defaults = listener_options(db, listening), listener_defaults(db)
    dynamic = outbound_traffic_policy(db, facet.scope).dynamic_dns
    head = build_capture(listening, defaults.outbound_port, options, db.settings.listeners.ipv6_only_has_ipv4, dynamic)
    chains = [build_black_hole_chain(BLACK_HOLE_CHAIN, defaults.outbound_port, options.network)]
    if dynamic:
        chains.append(_dynamic_dns_chain(db, facet))
    chains.append(
        build_chain(None, build_unmatched_filters(unmatched_cluster(db, facet), options), name=CATCH_ALL_CHAIN)
    )
    return ListenerParts(names.VIRTUAL_OUTBOUND, head.SerializeToString(deterministic=True), tuple(chains))


@derived
def capture_listeners(db: Mesh, facet: OutboundListenersFacet, tags: SpanTagsFacet) -> Mapping[str, Resource]:
    """Return a workload's capture listener and HTTP proxy listener.

    The capture listener is omitted if the workload's traffic is not captured. The HTTP proxy listener is omitted if the
    workload has none.
    """
    resources: dict[str, Resource] = {}
    tracing = tracing_fields(db, facet.listening, tags, facet.scope)
    if facet.listening.interception != "NONE":
        parts = virtual_outbound_parts(db, facet)
        resources[parts.name] = virtual_outbound(db, facet) if not parts.speaks_http else assemble(parts, tracing)
    port = facet.listening.http_proxy_port
    port = listener_defaults(db).http_proxy_port if port is None else port
    if port:
        parts = listener_parts(db, http_proxy_key(db, facet, port), facet.listening)
        resources[parts.name] = assemble(parts, tracing)
    return resources


@derived
def virtual_outbound(db: Mesh, facet: OutboundListenersFacet) -> Resource:
    """Return the capture listener without tracing, which all workloads share."""
    return assemble(virtual_outbound_parts(db, facet), b"")


@derived
def http_proxy_key(db: Mesh, facet: OutboundListenersFacet, port: int) -> OutboundListenerKey:
    """Return the key of the HTTP forward proxy on the loopback addresses, which serves all services in scope."""
    kind = ManagerKey(forward_proxy=True, allow_any=outbound_traffic_policy(db, facet.scope).dynamic_dns)
    chain = OutboundChainKey(http=HttpRoutes(kind, names.HTTP_PROXY), protocol=Protocol.HTTP_PROXY)
    return OutboundListenerKey(
        loopbacks(facet.listening.ipv4, facet.listening.ipv6), port, True, (chain,), names.BLACK_HOLE_CLUSTER
    )


def build_capture(
    listening: ListeningFacet, port: int, options: ListenerOptions, ipv6_only_has_ipv4: bool, detect_http: bool
) -> listener_pb2.Listener:
    """Return the capture listener without its filter chains."""
    binds = wildcards(listening.ipv4, listening.ipv6)
    others: tuple[str, ...] = ()
    if options.dual_stack and len(binds) > 1:
        others = binds[1:]
    elif ipv6_only_has_ipv4 and not listening.ipv4:
        others = (ANY_IPV4,)
    return build_listener_head(
        ListenerHead(
            name=names.VIRTUAL_OUTBOUND,
            binds=(binds[0], *others),
            port=port,
            max_accepts=options.max_accepts,
            filters=(HTTP_INSPECTOR,) if detect_http else (),
            access_logs=build_listener_access_logs(options.network.access_logs),
            transparent=listening.interception == "TPROXY",
            uses_original_dst=True,
        )
    )


def _dynamic_dns_chain(db: Mesh, facet: OutboundListenersFacet) -> ChainParts:
    """Return the chain for HTTP requests to unknown hosts. The hosts are resolved at request time."""
    headers = facet.listening.headers
    attempt_count = not (headers.attempt_count is not None and headers.attempt_count.disabled)
    forwarded_host = bool(headers.x_forwarded_host is not None and headers.x_forwarded_host.enabled)
    host = build_catch_all(outbound_traffic_policy(db, facet.scope), attempt_count, forwarded_host)
    routes = route_pb2.RouteConfiguration(name=host.name, virtual_hosts=[host], ignore_port_in_host_matching=True)
    routes.validate_clusters.value = False
    routes.max_direct_response_body_size_bytes.value = DIRECT_RESPONSE_BYTES
    template = manager_template_at(db, ManagerKey(allow_any=True), facet.listening, 0)
    manager = (template, inline_route_fields("outbound_virtualOutbound_allow_any_dynamic_dns;", routes))
    return build_chain(
        ChainMatch(alpns=plaintext_alpns(db.settings.listeners.http10)), manager=manager, name=f"{CATCH_ALL_CHAIN}-http"
    )
