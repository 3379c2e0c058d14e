"""Derives the listeners of a sidecar that are for no service: what captures outbound traffic, and the HTTP proxy on the pod's own
address."""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.filter_chain import ChainMatch, build_black_hole_chain, build_chain
from pilot.envoy.listener.listener_address import loopbacks, wildcards
from pilot.envoy.listener.listener_filters import HTTP_INSPECTOR
from pilot.envoy.listener.listener_head import Frame, build_frame
from pilot.envoy.listener.listener_options import ListenerOptions, listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ChainParts, ListenerParts, assemble
from pilot.envoy.listener.manager_template import ManagerKey, http_template, tracing_part, with_routes
from pilot.envoy.listener.outbound.outbound_builder import build_unmatched_filters
from pilot.envoy.listener.outbound.outbound_chains import plaintext_alpns
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
NONE: Mapping[str, Resource] = {}


@derived
def virtual_outbound_parts(db: Mesh, facet: OutboundListenersFacet) -> ListenerParts:
    """Returns what takes all outbound traffic that is captured and hands it to the listener of its destination, or does with it what
    the outbound traffic policy says."""
    listening = facet.listening
    options, mesh = listener_options(db, listening), listener_defaults(db)
    dynamic = outbound_traffic_policy(db, facet.scope).dynamic_dns
    head = build_capture(listening, mesh.outbound_port, options, db.settings.listeners.ipv6_only_has_ipv4, dynamic)
    chains = [build_black_hole_chain(BLACK_HOLE_CHAIN, mesh.outbound_port, options.network)]
    if dynamic:
        chains.append(_dynamic_dns_chain(db, facet))
    chains.append(
        build_chain(None, build_unmatched_filters(unmatched_cluster(db, facet), options), name=CATCH_ALL_CHAIN)
    )
    return ListenerParts(names.VIRTUAL_OUTBOUND, head.SerializeToString(deterministic=True), tuple(chains))


@derived
def capture_listeners(db: Mesh, facet: OutboundListenersFacet, tags: SpanTagsFacet) -> Mapping[str, Resource]:
    """Returns the outbound capture listener of a workload, where its traffic is captured, and its HTTP proxy, where it has one."""
    found: dict[str, Resource] = {}
    tracing = tracing_part(db, facet.listening, tags, facet.scope)
    if facet.listening.interception != "NONE":
        parts = virtual_outbound_parts(db, facet)
        found[parts.name] = virtual_outbound(db, facet) if not parts.speaks_http else assemble(parts, tracing)
    port = facet.listening.http_proxy_port
    port = listener_defaults(db).http_proxy_port if port is None else port
    if port:
        parts = listener_parts(db, http_proxy_spec(db, facet, port), facet.listening)
        found[parts.name] = assemble(parts, tracing)
    return found


@derived
def virtual_outbound(db: Mesh, facet: OutboundListenersFacet) -> Resource:
    """Returns the capture listener, where all workloads share it."""
    return assemble(virtual_outbound_parts(db, facet), b"")


@derived
def http_proxy_spec(db: Mesh, facet: OutboundListenersFacet, port: int) -> OutboundListenerKey:
    """Returns what a forward proxy for HTTP is made by, at the pod's own address, over all services of the scope."""
    kind = ManagerKey(forward_proxy=True, allow_any=outbound_traffic_policy(db, facet.scope).dynamic_dns)
    chain = OutboundChainKey(http=HttpRoutes(kind, names.HTTP_PROXY), protocol=Protocol.HTTP_PROXY)
    return OutboundListenerKey(
        loopbacks(facet.listening.ipv4, facet.listening.ipv6), port, True, (chain,), names.BLACK_HOLE_CLUSTER
    )


def build_capture(
    listening: ListeningFacet, port: int, options: ListenerOptions, ipv6_only_has_ipv4: bool, detect_http: bool
) -> listener_pb2.Listener:
    """Returns the capture listener without its chains."""
    binds = wildcards(listening.ipv4, listening.ipv6)
    others: tuple[str, ...] = ()
    if options.dual_stack and len(binds) > 1:
        others = binds[1:]
    elif ipv6_only_has_ipv4 and not listening.ipv4:
        others = (ANY_IPV4,)
    return build_frame(
        Frame(
            name=names.VIRTUAL_OUTBOUND,
            binds=(binds[0], *others),
            port=port,
            accepts=options.accepts,
            filters=(HTTP_INSPECTOR,) if detect_http else (),
            access_logs=build_listener_access_logs(options.network.access_logs),
            transparent=listening.interception == "TPROXY",
            hands_over=True,
        )
    )


def _dynamic_dns_chain(db: Mesh, facet: OutboundListenersFacet) -> ChainParts:
    """Returns the chain of unknown HTTP, to whatever host it asks for."""
    headers = facet.listening.headers
    attempt_count = not (headers.attempt_count is not None and headers.attempt_count.disabled)
    forwarded_host = bool(headers.x_forwarded_host is not None and headers.x_forwarded_host.enabled)
    host = build_catch_all(outbound_traffic_policy(db, facet.scope), attempt_count, forwarded_host)
    routes = route_pb2.RouteConfiguration(name=host.name, virtual_hosts=[host], ignore_port_in_host_matching=True)
    routes.validate_clusters.value = False
    routes.max_direct_response_body_size_bytes.value = DIRECT_RESPONSE_BYTES
    template = http_template(db, ManagerKey(allow_any=True), facet.listening, 0)
    manager = template + with_routes("outbound_virtualOutbound_allow_any_dynamic_dns;", routes)
    return build_chain(
        ChainMatch(alpns=plaintext_alpns(db.settings.listeners.http10)), manager=manager, name=f"{CATCH_ALL_CHAIN}-http"
    )
