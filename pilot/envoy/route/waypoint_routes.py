"""Derives the routes of the services behind a waypoint. They stand in its listener, one configuration for each port of a service: the address that
a client asked for says which service is meant, so that the host of a request does not matter.

The VirtualServices of the waypoint's namespace and of the service's are merged, as at a gateway. A destination behind the same waypoint is reached
directly, any other as by a sidecar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envoy.config.route.v3 import route_components_pb2, route_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB, destination_hash
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import Object, ObjectKey
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy.cluster.endpoint_discovery import is_dynamic
from pilot.envoy.cluster.vip_clusters import VipKey, possible_protocols
from pilot.envoy.names import HTTP
from pilot.envoy.route.action.retry_policy import build_retry
from pilot.envoy.route.action.route_action import build_hash_policy
from pilot.envoy.route.decorator import service_operation_name
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
from pilot.mesh.traffic.virtual_services import virtual_service, virtual_services_at_waypoint

DIRECT_RESPONSE_BYTES = 1 << 20
_FALSE = wrappers_pb2.BoolValue()


@derived
def vip_routes(db: Mesh, ref: ServiceRef, port: int, by: ServingKey) -> route_pb2.RouteConfiguration:
    """Returns the routes of a port of a service. The message is shared: copy it, do not change it."""
    cluster, found = VipKey(ref, port, HTTP).name, service(db, ref)
    domains = [ref.hostname] if found is not None and is_dynamic(found) else ["*"]
    routes = [
        r
        for rule in waypoint_virtual_services(db, ref, by.scope.namespace)
        for r in build_routes(rule, _context(db, rule.key, port, by))
    ]
    if routes:
        return build_vip_configuration(cluster, port, domains, routes)
    return build_default_vip_configuration(
        cluster, port, service_operation_name(ref.hostname, port), domains, default_vip_action(db, ref, cluster, by)
    )


def waypoint_virtual_services(db: Mesh, ref: ServiceRef, namespace: str) -> Iterator[Object[VirtualService]]:
    """Yields the VirtualServices that a waypoint of a namespace applies to a service, in the order they are tried."""
    for key in virtual_services_at_waypoint(db, ref.hostname, ref.namespace, namespace):
        if (found := virtual_service(db, key)) is not None:
            yield found


def build_vip_configuration(
    name: str, port: int, domains: Sequence[str], routes: Sequence[route_components_pb2.Route]
) -> route_pb2.RouteConfiguration:
    """Returns a configuration with one virtual host."""
    host = route_components_pb2.VirtualHost(name=f"inbound|http|{port}", domains=domains, routes=routes)
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=[host], validate_clusters=_FALSE)


def build_default_vip_configuration(
    name: str, port: int, operation: str, domains: Sequence[str], action: route_components_pb2.RouteAction
) -> route_pb2.RouteConfiguration:
    """Returns the configuration of what no VirtualService routes."""
    decorator = route_components_pb2.Decorator(operation=operation)
    route = route_components_pb2.Route(name="default", match=MATCH_ALL, route=action, decorator=decorator)
    built = build_vip_configuration(name, port, domains, [route])
    built.max_direct_response_body_size_bytes.value = DIRECT_RESPONSE_BYTES
    return built


def default_vip_action(
    db: Mesh, ref: ServiceRef | None, cluster: str, by: ServingKey
) -> route_components_pb2.RouteAction:
    """Returns where requests go that no VirtualService routes. No node of its own."""
    key = inbound_merged_rule_key(db, by.scope.namespace, ref) if ref is not None else ()
    rule = merged_rule(db, key) if key else None
    policy = rule.spec.traffic_policy if rule is not None else None
    balancer = policy.load_balancer if policy is not None else None
    hashed = build_hash_policy(balancer.consistent_hash) if balancer is not None else None
    return route_components_pb2.RouteAction(
        cluster=cluster,
        timeout=ZERO_DURATION,
        max_grpc_timeout=ZERO_DURATION,
        retry_policy=build_retry(default_retry_policy(db)),
        hash_policy=[hashed] if hashed is not None else [],
    )


# -- destinations ----------------------------------------------------------------------------------


def _context(db: Mesh, key: ObjectKey, port: int, by: ServingKey) -> RouteContext:
    asks = route_dependencies(db, key)
    hosts, hashed = (asks.hosts, asks.hashed) if asks is not None else (frozenset(), ())
    destinations = {
        host: found
        for host in sorted(hosts)
        if (found := find_waypoint_destination(db, host, key.namespace, by)) is not None
    }
    return RouteContext(
        port=port,
        namespace=by.scope.namespace,
        destinations=destinations,
        hashes={k: settings for k in hashed if (settings := _hashing(db, k, key.namespace, by)) is not None},
        retries=default_retry_policy(db),
        shadow_suffix=not db.settings.routes.no_shadow_suffix,
        waypoint=True,
    )


def find_destination_ref(db: Mesh, host: str, owner: str, by: ServingKey) -> ServiceRef | None:
    """Returns the service that a host name means in a VirtualService of a namespace: one behind the waypoint first."""
    return served_by_host(db, by.waypoint).get(host) or destination_ref(db, host, owner, by.scope.namespace)


def find_waypoint_destination(db: Mesh, host: str, owner: str, by: ServingKey) -> DestinationService | None:
    """Returns the service that a destination names, as far as routes to it depend on it. No node of its own."""
    ref = find_destination_ref(db, host, owner, by)
    return waypoint_destination(db, ref, by.waypoint) if ref is not None else None


@derived
def waypoint_destination(db: Mesh, ref: ServiceRef, waypoint: ObjectKey) -> DestinationService:
    """Returns a service, as far as routes of a waypoint to it depend on it."""
    known, found = find_destination_service(db, ref), service(db, ref)
    if found is None or not is_served(db, waypoint, ref):
        return known
    return known._replace(served=_speaking(found))


def _speaking(found: Service) -> tuple[tuple[int, str], ...]:
    """Returns what a route is taken to speak to each port: HTTP where it may be."""
    return tuple((p.number, possible_protocols(p.protocol)[-1]) for p in found.ports if p.protocol is not Protocol.UDP)


def _hashing(db: Mesh, key: DestinationKey, owner: str, by: ServingKey) -> ConsistentHashLB | None:
    ref = find_destination_ref(db, key.host, owner, by)
    rule = destination_rule(db, by.scope, ref, by.labels) if ref is not None else None
    return destination_hash(rule.spec, key.subset, key.port) if rule is not None else None
