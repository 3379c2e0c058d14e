"""Builds the virtual host for unknown hosts, which applies the outbound traffic policy."""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2

from pilot.envoy.names import ALLOW_ANY_DYNAMIC_DNS_CLUSTER, PASSTHROUGH_CLUSTER
from pilot.envoy.route.route_destination import destination_cluster
from pilot.envoy.well_known_types import ZERO_DURATION
from pilot.mesh.scope.sidecar_scope import OutboundPolicy

ALLOW_ANY, DYNAMIC_DNS, BLOCK_ALL = "allow_any", "allow_any_dynamic_dns", "block_all"
BAD_GATEWAY = 502


def build_catch_all(
    policy: OutboundPolicy, attempt_count: bool, forwarded_host: bool
) -> route_components_pb2.VirtualHost:
    """Return the virtual host.

    Requests are forwarded to their original destination or to the Sidecar's egress proxy, or they are rejected.
    """
    name, cluster = _cluster(policy)
    route = route_components_pb2.Route(name=name, match=route_components_pb2.RouteMatch(prefix="/"))
    if cluster:
        route.route.CopyFrom(
            route_components_pb2.RouteAction(
                cluster=cluster,
                timeout=ZERO_DURATION,
                max_grpc_timeout=ZERO_DURATION,
                append_x_forwarded_host=forwarded_host,
            )
        )
    else:
        route.direct_response.status = BAD_GATEWAY
    return route_components_pb2.VirtualHost(
        name=name, domains=["*"], routes=[route], include_request_attempt_count=attempt_count
    )


def _cluster(policy: OutboundPolicy) -> tuple[str, str]:
    if policy.mode == "ALLOW_ANY":
        return ALLOW_ANY, destination_cluster(
            policy.egress_proxy, None, 0
        ) if policy.egress_proxy is not None else PASSTHROUGH_CLUSTER
    if policy.dynamic_dns:
        return DYNAMIC_DNS, ALLOW_ANY_DYNAMIC_DNS_CLUSTER
    return BLOCK_ALL, ""
