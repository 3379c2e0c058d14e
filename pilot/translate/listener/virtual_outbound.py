"""The listeners of a sidecar that are for no service: what captures outbound traffic, and the HTTP proxy on the pod's own address."""
from __future__ import annotations

from collections.abc import Mapping

from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_pb2

from pilot.derive import derived
from pilot.model.facets import Listening, OutboundListening, Tags
from pilot.model.inputs import Mesh
from pilot.model.service import Protocol
from pilot.model.views.sidecar_scope import outbound_traffic_policy
from pilot.translate import names
from pilot.translate.access_log import build_listener_access_logs
from pilot.translate.listener.address import ANY_IPV4, build_additional, build_address, loopbacks, wildcards
from pilot.translate.listener.build import SocketOptions, build_unmatched_filters
from pilot.translate.listener.chain_spec import ChainSpec, HttpRoutes, ListenerSpec
from pilot.translate.listener.defaults import listener_defaults
from pilot.translate.listener.http import HttpClass, http_template, tracing_part, with_routes
from pilot.translate.listener.listener_filter import HTTP_INSPECTOR
from pilot.translate.listener.outbound import listener_parts, socket_options, unmatched_cluster
from pilot.translate.listener.outbound_chains import plaintext_alpns
from pilot.translate.listener.parts import ChainParts, ListenerParts, assemble, split_chain
from pilot.translate.network_filter.tcp_proxy import build_tcp_proxy, to_cluster
from pilot.translate.resource import Resource
from pilot.translate.route.catch_all import build_catch_all
from pilot.translate.route.configuration import DIRECT_RESPONSE_BYTES

Chain = listener_components_pb2.FilterChain
BLACK_HOLE_CHAIN, CATCH_ALL_CHAIN = "virtualOutbound-blackhole", "virtualOutbound-catchall-tcp"
NONE: Mapping[str, Resource] = {}


@derived
def virtual_outbound_parts(db: Mesh, facet: OutboundListening) -> ListenerParts:
    """What takes all outbound traffic that is captured and hands it to the listener of its destination, or does with it what the
    outbound traffic policy says."""
    listening = facet.listening
    options, mesh = socket_options(db, listening), listener_defaults(db)
    dynamic = outbound_traffic_policy(db, facet.scope).dynamic_dns
    head = build_capture(listening, mesh.outbound_port, options, db.settings.dual_stack, db.settings.ipv6_only_has_ipv4, dynamic)
    chains = [split_chain(_build_black_hole(mesh.outbound_port))]
    if dynamic:
        chains.append(_dynamic_dns_chain(db, facet))
    chains.append(split_chain(Chain(name=CATCH_ALL_CHAIN, filters=build_unmatched_filters(unmatched_cluster(db, facet), options))))
    return ListenerParts(names.VIRTUAL_OUTBOUND, head.SerializeToString(deterministic=True), tuple(chains))


@derived
def capture_listeners(db: Mesh, facet: OutboundListening, tags: Tags) -> Mapping[str, Resource]:
    """The outbound capture listener of a workload, where its traffic is captured, and its HTTP proxy, where it has one."""
    found: dict[str, Resource] = {}
    tracing = tracing_part(db, facet.listening, tags)
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
def virtual_outbound(db: Mesh, facet: OutboundListening) -> Resource:
    """The capture listener, where all workloads share it."""
    return assemble(virtual_outbound_parts(db, facet), b"")


@derived
def http_proxy_spec(db: Mesh, facet: OutboundListening, port: int) -> ListenerSpec:
    """A forward proxy for HTTP at the pod's own address, over all services of the scope."""
    kind = HttpClass(side="outbound", forward_proxy=True, allow_any=outbound_traffic_policy(db, facet.scope).dynamic_dns)
    chain = ChainSpec(http=HttpRoutes(kind, names.HTTP_PROXY), protocol=Protocol.HTTP_PROXY)
    return ListenerSpec(loopbacks(facet.listening.ipv4, facet.listening.ipv6), port, True, (chain,), names.BLACK_HOLE_CLUSTER)


def build_capture(
    listening: Listening, port: int, options: SocketOptions, dual_stack: bool, ipv6_only_has_ipv4: bool, detect_http: bool
) -> listener_pb2.Listener:
    """The capture listener without its chains."""
    binds = wildcards(listening.ipv4, listening.ipv6)
    others: tuple[str, ...] = ()
    if dual_stack and len(binds) > 1:
        others = binds[1:]
    elif ipv6_only_has_ipv4 and not listening.ipv4:
        others = (ANY_IPV4,)
    listener = listener_pb2.Listener(
        name=names.VIRTUAL_OUTBOUND,
        address=build_address(binds[0], port),
        additional_addresses=build_additional(others, port),
        traffic_direction=base_pb2.OUTBOUND,
        access_log=build_listener_access_logs(options.access_logs),
        listener_filters=[HTTP_INSPECTOR] if detect_http else [],
    )
    listener.use_original_dst.value = True
    if listening.interception == "TPROXY":
        listener.transparent.value = True
    if options.accepts:
        listener.max_connections_to_accept_per_socket_event.value = options.accepts
    return listener


def _build_black_hole(port: int) -> listener_components_pb2.FilterChain:
    """For connections to the capturing port itself, which would be captured again and again."""
    chain = Chain(name=BLACK_HOLE_CHAIN, filters=[build_tcp_proxy(to_cluster(names.BLACK_HOLE_CLUSTER))])
    chain.filter_chain_match.destination_port.value = port
    return chain


def _dynamic_dns_chain(db: Mesh, facet: OutboundListening) -> ChainParts:
    """Unknown HTTP, to whatever host it asks for."""
    chain = Chain(name=f"{CATCH_ALL_CHAIN}-http")
    chain.filter_chain_match.application_protocols.extend(plaintext_alpns(db.settings.http10))
    headers = facet.listening.headers
    attempt_count = not (headers.attempt_count is not None and headers.attempt_count.disabled)
    forwarded_host = bool(headers.x_forwarded_host is not None and headers.x_forwarded_host.enabled)
    host = build_catch_all(outbound_traffic_policy(db, facet.scope), attempt_count, forwarded_host)
    routes = route_pb2.RouteConfiguration(name=host.name, virtual_hosts=[host], ignore_port_in_host_matching=True)
    routes.validate_clusters.value = False
    routes.max_direct_response_body_size_bytes.value = DIRECT_RESPONSE_BYTES
    template = http_template(db, HttpClass(side="outbound", allow_any=True), facet.listening)
    return split_chain(chain, template + with_routes("outbound_virtualOutbound_allow_any_dynamic_dns;", routes))
