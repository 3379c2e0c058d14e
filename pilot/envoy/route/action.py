"""Builds RouteAction: which clusters a request goes to, how long it may take, and under which host."""

from __future__ import annotations

from collections.abc import Sequence

from envoy.config.route.v3 import route_components_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB
from pilot.config.networking.virtual_service import HTTPRoute, HTTPRouteDestination
from pilot.envoy.route.context import RouteContext
from pilot.envoy.route.destination import destination_cluster, destination_key
from pilot.envoy.route.hash_policy import build_hash_policy
from pilot.envoy.route.headers import build_operations
from pilot.envoy.route.mirror import build_mirrors
from pilot.envoy.route.retry import build_retry
from pilot.envoy.route.rewrite import set_path_rewrite
from pilot.envoy.well_known_types import ZERO_DURATION, build_duration


def build_action(rule: HTTPRoute, context: RouteContext, authority: str) -> route_components_pb2.RouteAction | None:
    """Returns None where no destination has any weight. `authority`: the host that the rule's headers set, "" for none.

    The headers of a single destination are the route's: they are set by `build_route`.
    """
    action = route_components_pb2.RouteAction(
        timeout=ZERO_DURATION,
        max_grpc_timeout=ZERO_DURATION,
        request_mirror_policies=list(build_mirrors(rule, context)),
        hash_policy=[h for d in destinations(rule) if (h := build_hash_policy(_hash(d, context))) is not None],
    )
    if rule.timeout is not None:
        action.timeout.CopyFrom(build_duration(rule.timeout))
        action.max_grpc_timeout.CopyFrom(action.timeout)
    if rule.rewrite is not None:
        action.append_x_forwarded_host = context.forwarded_host
        set_path_rewrite(action, rule.rewrite)
        authority = rule.rewrite.authority or authority
    if authority:
        action.host_rewrite_literal = authority
    if not _set_clusters(action, rule, context):
        return None
    retry = build_retry(
        rule.retries or context.retries, hashed=len(rule.route) == 1 and _hash(rule.route[0], context) is not None
    )
    if retry is not None:
        action.retry_policy.CopyFrom(retry)
    return action


def destinations(rule: HTTPRoute) -> Sequence[HTTPRouteDestination]:
    """Returns the destinations that get requests: a single one whatever its weight, of several those that have a weight."""
    return rule.route if len(rule.route) == 1 else [d for d in rule.route if d.weight]


def _hash(route: HTTPRouteDestination, context: RouteContext) -> ConsistentHashLB | None:
    return context.hashes.get(destination_key(route.destination)) if route.destination is not None else None


def _cluster(route: HTTPRouteDestination, context: RouteContext) -> str:
    service = context.destinations.get(route.destination.host) if route.destination is not None else None
    return destination_cluster(route.destination, service, context.port, context.waypoint)


def _set_clusters(action: route_components_pb2.RouteAction, rule: HTTPRoute, context: RouteContext) -> bool:
    if len(rule.route) == 1:
        action.cluster = _cluster(rule.route[0], context)
        return True
    clusters = [_weighted(d, context) for d in destinations(rule)]
    action.weighted_clusters.clusters.extend(clusters)
    return bool(clusters)


def _weighted(route: HTTPRouteDestination, context: RouteContext) -> route_components_pb2.WeightedCluster.ClusterWeight:
    operations = build_operations(route.headers)
    out = route_components_pb2.WeightedCluster.ClusterWeight(
        name=_cluster(route, context), weight=wrappers_pb2.UInt32Value(value=route.weight), **operations.fields()
    )
    if operations.authority:
        out.host_rewrite_literal = operations.authority
    return out
