"""Builds copies of requests whose answers are thrown away. https:

istio.io/latest/docs/tasks/traffic-management/mirroring/
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import Destination, HTTPRoute, Percent
from pilot.envoy.route.context import RouteContext
from pilot.envoy.route.destination import destination_cluster
from pilot.envoy.route.percent import ALL, build_fraction, build_runtime, build_whole


def build_mirrors(
    rule: HTTPRoute, context: RouteContext
) -> Iterable[route_components_pb2.RouteAction.RequestMirrorPolicy]:
    """Returns one policy for `mirror`, and one for each of `mirrors`; a share of nothing is no mirror."""
    if rule.mirror is not None:
        yield from _mirror(rule.mirror, _share(rule.mirror_percentage, rule.mirror_percent), context)
    for policy in rule.mirrors:
        if policy.destination is not None:
            yield from _mirror(policy.destination, _share(policy.percentage, None), context)


def _mirror(
    destination: Destination, share: base_pb2.RuntimeFractionalPercent | None, context: RouteContext
) -> Iterable[route_components_pb2.RouteAction.RequestMirrorPolicy]:
    if share is not None:
        yield route_components_pb2.RouteAction.RequestMirrorPolicy(
            cluster=destination_cluster(
                destination, context.destinations.get(destination.host), context.port, context.waypoint
            ),
            runtime_fraction=share,
            trace_sampled=wrappers_pb2.BoolValue(value=False),
            disable_shadow_host_suffix_append=not context.shadow_suffix,
        )


def _share(percentage: Percent | None, whole: int | None) -> base_pb2.RuntimeFractionalPercent | None:
    """Returns the share that is mirrored: all requests where nothing is said, None for a share of 0."""
    if percentage is not None:
        return build_runtime(build_fraction(percentage)) if percentage.value > 0 else None
    if whole is not None:
        return build_runtime(build_whole(whole)) if whole > 0 else None
    return ALL
