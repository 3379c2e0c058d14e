"""Derives the routes for the services behind a waypoint. There is one route configuration for each port of a service.

The routes are part of the waypoint's listener. The destination address of a connection identifies the service, so the
host of a request is ignored. VirtualServices in the waypoint's namespace and in the service's namespace are merged, as
for gateways. Destinations behind the same waypoint are reached directly, and others are reached as from a sidecar.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from envoy.config.route.v3 import route_components_pb2, route_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import Object, ObjectKey
from pilot.config.protocol import Protocol
from pilot.derive import derived, derived_in_steps
from pilot.envoy.cluster.endpoint_discovery import is_dynamic
from pilot.envoy.cluster.vip_clusters import VipKey, possible_protocols
from pilot.envoy.names import HTTP
from pilot.envoy.route.action.retry_policy import build_retry
from pilot.envoy.route.action.route_action import build_hash_policy
from pilot.envoy.route.decorator import service_operation_name
from pilot.envoy.route.route_configuration import DIRECT_RESPONSE_BYTES
from pilot.envoy.route.route_context import RouteContext, default_retry_policy
from pilot.envoy.route.route_dependencies import route_dependencies
from pilot.envoy.route.route_destination import DestinationKey, DestinationService, find_destination_service
from pilot.envoy.route.route_match import MATCH_ALL
from pilot.envoy.route.virtual_service_routes import build_routes
from pilot.envoy.well_known_types import ZERO_DURATION
from pilot.mesh.model.service import Service, ServiceRef
from pilot.mesh.proxies.waypoint import ServingKey, is_served, served_by_host
from pilot.mesh.registry.service_lookup import destination_ref
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.traffic.destination_rules import destination_rule, inbound_merged_rule_key, merged_rule
from pilot.mesh.traffic.route_limits import has_routes_at
from pilot.mesh.traffic.virtual_services import virtual_service, virtual_services_at_waypoint

_FALSE = wrappers_pb2.BoolValue()


@derived_in_steps
def vip_routes(
    db: Mesh, ref: ServiceRef, port: int, serving: ServingKey
) -> Generator[None, None, route_pb2.RouteConfiguration]:
    """Return the routes for a port of a service. The message is shared and must not be modified."""
    cluster, row = VipKey(ref, port, HTTP).name, service(db, ref)
    domains = [ref.hostname] if row is not None and is_dynamic(row) else ["*"]
    rules = [
        (rule, _context(db, rule.key, port, serving))
        for rule in waypoint_virtual_services(db, ref, serving.scope.namespace)
        if row is None or has_routes_at(rule.spec, row.port_position(port))
    ]
    routes = []
    for rule, context in rules:
        for route in build_routes(rule, context):
            routes.append(route)
            yield
    if routes:
        return build_vip_configuration(cluster, port, domains, routes)
    return build_default_vip_configuration(
        cluster,
        port,
        service_operation_name(ref.hostname, port),
        domains,
        default_vip_action(db, ref, cluster, serving),
    )


def waypoint_virtual_services(db: Mesh, ref: ServiceRef, namespace: str) -> Iterator[Object[VirtualService]]:
    """Yield the VirtualServices that a waypoint applies to a service, in order of evaluation.

    `namespace` is the namespace of the waypoint.
    """
    for key in virtual_services_at_waypoint(db, ref.hostname, ref.namespace, namespace):
        if (row := virtual_service(db, key)) is not None:
            yield row


def build_vip_configuration(
    name: str, port: int, domains: Sequence[str], routes: Sequence[route_components_pb2.Route]
) -> route_pb2.RouteConfiguration:
    """Return a route configuration with one virtual host."""
    host = route_components_pb2.VirtualHost(name=f"inbound|http|{port}", domains=domains, routes=routes)
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=[host], validate_clusters=_FALSE)


def build_default_vip_configuration(
    name: str, port: int, operation: str, domains: Sequence[str], action: route_components_pb2.RouteAction
) -> route_pb2.RouteConfiguration:
    """Return the route configuration for a port to which no VirtualService applies."""
    decorator = route_components_pb2.Decorator(operation=operation)
    route = route_components_pb2.Route(name="default", match=MATCH_ALL, route=action, decorator=decorator)
    configuration = build_vip_configuration(name, port, domains, [route])
    configuration.max_direct_response_body_size_bytes.value = DIRECT_RESPONSE_BYTES
    return configuration


def default_vip_action(
    db: Mesh, ref: ServiceRef | None, cluster: str, serving: ServingKey
) -> route_components_pb2.RouteAction:
    """Return the action for requests that no VirtualService routes. Not memoised."""
    key = inbound_merged_rule_key(db, serving.scope.namespace, ref) if ref is not None else ()
    rule = merged_rule(db, key) if key else None
    policy = rule.spec.traffic_policy if rule is not None else None
    balancer = policy.load_balancer if policy is not None else None
    hash_policy = build_hash_policy(balancer.consistent_hash) if balancer is not None else None
    return route_components_pb2.RouteAction(
        cluster=cluster,
        timeout=ZERO_DURATION,
        max_grpc_timeout=ZERO_DURATION,
        retry_policy=build_retry(default_retry_policy(db)),
        hash_policy=[hash_policy] if hash_policy is not None else [],
    )


# -- destinations ----------------------------------------------------------------------------------


def _context(db: Mesh, key: ObjectKey, port: int, serving: ServingKey) -> RouteContext:
    dependencies = route_dependencies(db, key)
    hosts, hash_candidates = (
        (dependencies.hosts, dependencies.hash_candidates) if dependencies is not None else (frozenset(), ())
    )
    destinations = {
        host: destination
        for host in sorted(hosts)
        if (destination := find_waypoint_destination(db, host, key.namespace, serving)) is not None
    }
    return RouteContext(
        port=port,
        namespace=serving.scope.namespace,
        destinations=destinations,
        consistent_hashes={
            k: settings
            for k in hash_candidates
            if (settings := _consistent_hash(db, k, key.namespace, serving)) is not None
        },
        retries=default_retry_policy(db),
        shadow_suffix=not db.settings.routes.no_shadow_suffix,
        waypoint=True,
    )


def find_destination_ref(db: Mesh, host: str, owner: str, serving: ServingKey) -> ServiceRef | None:
    """Return the service for a host in a VirtualService. Services behind the waypoint take precedence."""
    return served_by_host(db, serving.waypoint).get(host) or destination_ref(db, host, owner, serving.scope.namespace)


def find_waypoint_destination(db: Mesh, host: str, owner: str, serving: ServingKey) -> DestinationService | None:
    """Return the properties that affect routes to the service for a host. Not memoised.

    Return None if there is no such service.
    """
    ref = find_destination_ref(db, host, owner, serving)
    return waypoint_destination(db, ref, serving.waypoint) if ref is not None else None


@derived
def waypoint_destination(db: Mesh, ref: ServiceRef, waypoint: ObjectKey) -> DestinationService:
    """Return the properties of a service that affect routes at a waypoint."""
    destination, row = find_destination_service(db, ref), service(db, ref)
    if row is None or not is_served(db, waypoint, ref):
        return destination
    return destination._replace(vip_protocols=_vip_protocols(row))


def _vip_protocols(service: Service) -> tuple[tuple[int, str], ...]:
    """Return the protocol that routes use for each port. It is HTTP if the port may carry HTTP."""
    return tuple(
        (p.number, possible_protocols(p.protocol)[-1]) for p in service.ports if p.protocol is not Protocol.UDP
    )


def _consistent_hash(db: Mesh, key: DestinationKey, owner: str, serving: ServingKey) -> ConsistentHashLB | None:
    ref = find_destination_ref(db, key.host, owner, serving)
    rule = destination_rule(db, serving.scope, ref, serving.labels) if ref is not None else None
    return destination_hash(rule.spec, key.subset, key.port) if rule is not None else None
