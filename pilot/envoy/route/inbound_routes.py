"""Builds the routes of a sidecar's inbound listeners, which forward everything to the workload.

These routes are part of the listener and not of RDS.
"""

from __future__ import annotations

from envoy.config.route.v3 import route_components_pb2, route_pb2
from google.protobuf import wrappers_pb2

from pilot.config.networking.virtual_service import HTTPRetry
from pilot.config.protocol import Protocol
from pilot.envoy.route.action.retry_policy import build_inbound_retry
from pilot.envoy.route.decorator import service_operation_name
from pilot.envoy.route.route_match import MATCH_ALL
from pilot.envoy.well_known_types import ZERO_DURATION

_Action = route_components_pb2.RouteAction
_FALSE = wrappers_pb2.BoolValue()
_NO_LIMIT = _Action.MaxStreamDuration(max_stream_duration=ZERO_DURATION, grpc_timeout_header_max=ZERO_DURATION)
_GRPC = (Protocol.GRPC, Protocol.GRPC_WEB)


def build_inbound_routes(
    cluster: str, hostname: str, port: int, protocol: Protocol, retries: HTTPRetry | None
) -> route_pb2.RouteConfiguration:
    """Return the routes to a cluster, for a port of the service `hostname`. `hostname` is "" if there is no service.

    The client's sidecar enforces timeouts. `retries` is the mesh's default for inbound requests, or None for the
    built-in policy. gRPC requests are not retried, because the retry conditions have a different meaning for an open
    stream.
    """
    retry = build_inbound_retry(retries) if protocol not in _GRPC else None
    route = route_components_pb2.Route(
        name="default",
        match=MATCH_ALL,
        route=_Action(cluster=cluster, timeout=ZERO_DURATION, max_stream_duration=_NO_LIMIT, retry_policy=retry),
        decorator=route_components_pb2.Decorator(operation=service_operation_name(hostname, port)),
    )
    host = route_components_pb2.VirtualHost(name=f"inbound|http|{port}", domains=["*"], routes=[route])
    return route_pb2.RouteConfiguration(name=cluster, virtual_hosts=[host], validate_clusters=_FALSE)
