"""Builds RouteAction: clusters, timeouts, rewrites, mirrors, hash policies and retries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from envoy.type.matcher.v3 import regex_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.destination_rule import ConsistentHashLB, HTTPCookie
from pilot.config.networking.virtual_service import Destination, HTTPRewrite, HTTPRoute, HTTPRouteDestination, Percent
from pilot.envoy.route.action.fractional_percent import (
    HUNDRED_PERCENT,
    build_fractional_percent,
    build_runtime_percent,
    build_whole_percent,
)
from pilot.envoy.route.action.header_operations import build_header_mutations
from pilot.envoy.route.action.retry_policy import build_retry
from pilot.envoy.route.route_context import RouteContext
from pilot.envoy.route.route_destination import destination_cluster, destination_key
from pilot.envoy.route.route_match import build_regex
from pilot.envoy.well_known_types import ZERO_DURATION, build_duration


def build_action(rule: HTTPRoute, context: RouteContext, authority: str) -> route_components_pb2.RouteAction | None:
    """Return the action, or None if no destination has a weight.

    `authority` is the host that the rule's headers set, or "". If there is a single destination, `build_route` adds its
    headers.
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
    """Return the destinations that receive requests: a single destination, or else all destinations with a weight."""
    return rule.route if len(rule.route) == 1 else [d for d in rule.route if d.weight]


def _hash(route: HTTPRouteDestination, context: RouteContext) -> ConsistentHashLB | None:
    return context.consistent_hashes.get(destination_key(route.destination)) if route.destination is not None else None


def _cluster(route: HTTPRouteDestination, context: RouteContext) -> str:
    service = context.destinations.get(route.destination.host) if route.destination is not None else None
    return destination_cluster(route.destination, service, context.port, context.waypoint)


def _set_clusters(action: route_components_pb2.RouteAction, rule: HTTPRoute, context: RouteContext) -> bool:
    if len(rule.route) == 1:
        action.cluster = _cluster(rule.route[0], context)
        return True
    clusters = [_weighted_cluster(d, context) for d in destinations(rule)]
    action.weighted_clusters.clusters.extend(clusters)
    return bool(clusters)


def _weighted_cluster(
    route: HTTPRouteDestination, context: RouteContext
) -> route_components_pb2.WeightedCluster.ClusterWeight:
    mutations = build_header_mutations(route.headers)
    cluster_weight = route_components_pb2.WeightedCluster.ClusterWeight(
        name=_cluster(route, context), weight=wrappers_pb2.UInt32Value(value=route.weight), **mutations.fields()
    )
    if mutations.authority:
        cluster_weight.host_rewrite_literal = mutations.authority
    return cluster_weight


def build_mirrors(
    rule: HTTPRoute, context: RouteContext
) -> Iterable[route_components_pb2.RouteAction.RequestMirrorPolicy]:
    """Yield a policy for `mirror` and for each of `mirrors`. A mirror with a percentage of 0 is omitted.

    https://istio.io/latest/docs/tasks/traffic-management/mirroring/
    """
    if rule.mirror is not None:
        yield from _mirror(rule.mirror, _mirror_percent(rule.mirror_percentage, rule.mirror_percent), context)
    for policy in rule.mirrors:
        if policy.destination is not None:
            yield from _mirror(policy.destination, _mirror_percent(policy.percentage, None), context)


def _mirror(
    destination: Destination, percent: base_pb2.RuntimeFractionalPercent | None, context: RouteContext
) -> Iterable[route_components_pb2.RouteAction.RequestMirrorPolicy]:
    if percent is not None:
        yield route_components_pb2.RouteAction.RequestMirrorPolicy(
            cluster=destination_cluster(
                destination, context.destinations.get(destination.host), context.port, context.waypoint
            ),
            runtime_fraction=percent,
            trace_sampled=wrappers_pb2.BoolValue(value=False),
            disable_shadow_host_suffix_append=not context.shadow_suffix,
        )


def _mirror_percent(percentage: Percent | None, whole: int | None) -> base_pb2.RuntimeFractionalPercent | None:
    """Return the percentage of requests to mirror, or None if it is 0. The default is 100."""
    if percentage is not None:
        return build_runtime_percent(build_fractional_percent(percentage)) if percentage.value > 0 else None
    if whole is not None:
        return build_runtime_percent(build_whole_percent(whole)) if whole > 0 else None
    return HUNDRED_PERCENT


def set_path_rewrite(action: route_components_pb2.RouteAction, rewrite: HTTPRewrite) -> None:
    """Set the path rewrite. A regular expression takes precedence over a prefix.

    A prefix rewrite replaces the part of the path that the route's match covers.
    """
    if rewrite.uri_regex_rewrite is not None:
        pattern = build_regex(rewrite.uri_regex_rewrite.match)
        action.regex_rewrite.CopyFrom(
            regex_pb2.RegexMatchAndSubstitute(pattern=pattern, substitution=rewrite.uri_regex_rewrite.rewrite)
        )
    elif rewrite.uri:
        action.prefix_rewrite = rewrite.uri


_HashPolicy = route_components_pb2.RouteAction.HashPolicy


def build_hash_policy(settings: ConsistentHashLB | None) -> route_components_pb2.RouteAction.HashPolicy | None:
    """Return the hash policy, or None if the settings have no key.

    A cluster configures the load balancer, and the routes to the cluster configure the hash key.
    """
    if settings is None:
        return None
    if settings.http_header_name:
        return _HashPolicy(header=_HashPolicy.Header(header_name=settings.http_header_name))
    if settings.http_cookie is not None:
        return _HashPolicy(cookie=_cookie(settings.http_cookie))
    if settings.use_source_ip is not None:
        return _HashPolicy(connection_properties=_HashPolicy.ConnectionProperties(source_ip=settings.use_source_ip))
    if settings.http_query_parameter_name:
        return _HashPolicy(query_parameter=_HashPolicy.QueryParameter(name=settings.http_query_parameter_name))
    return None


def _cookie(cookie: HTTPCookie) -> route_components_pb2.RouteAction.HashPolicy.Cookie:
    return _HashPolicy.Cookie(
        name=cookie.name,
        path=cookie.path,
        ttl=build_duration(cookie.ttl) if cookie.ttl is not None else None,
        attributes=[_HashPolicy.CookieAttribute(name=a.name, value=a.value) for a in cookie.attributes],
    )
