"""HTTP filters that are the same for every proxy, or differ only in a few flags."""

from __future__ import annotations

from functools import lru_cache

from envoy.extensions.filters.http.cors.v3 import cors_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.grpc_stats.v3 import config_pb2 as grpc_stats_pb2
from envoy.extensions.filters.http.grpc_web.v3 import grpc_web_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.well_known_types import pack
from protos import alpn_pb2

CORS_FILTER = "envoy.filters.http.cors"
FAULT_FILTER = "envoy.filters.http.fault"
STATEFUL_SESSION_FILTER = "envoy.filters.http.stateful_session"

CORS = hcm_pb2.HttpFilter(name=CORS_FILTER, typed_config=pack(cors_pb2.Cors()))
"""Answers cross-origin preflight requests. The policy is part of the route configuration."""
FAULT = hcm_pb2.HttpFilter(name=FAULT_FILTER, typed_config=pack(fault_pb2.HTTPFault()))
"""Injects delays and aborts, which are part of the route configuration."""
STATEFUL_SESSION = hcm_pb2.HttpFilter(
    name=STATEFUL_SESSION_FILTER, typed_config=pack(stateful_session_pb2.StatefulSession())
)
"""Keeps a session on one endpoint. Routes to services with sticky sessions configure it."""
GRPC_WEB = hcm_pb2.HttpFilter(name="envoy.filters.http.grpc_web", typed_config=pack(grpc_web_pb2.GrpcWeb()))
"""Translates gRPC-Web requests from browsers into gRPC."""
GRPC_STATS = hcm_pb2.HttpFilter(
    name="envoy.filters.http.grpc_stats",
    typed_config=pack(
        grpc_stats_pb2.FilterConfig(emit_filter_state=True, stats_for_all_methods=wrappers_pb2.BoolValue(value=False))
    ),
)
"""Counts gRPC messages. The counts go to filter state for telemetry, and not to Envoy's statistics for each method."""

_ALPN_OFFERS = {
    alpn_pb2.FilterConfig.HTTP10: ("istio-http/1.0", "istio", "http/1.0"),
    alpn_pb2.FilterConfig.HTTP11: ("istio-http/1.1", "istio", "http/1.1"),
    alpn_pb2.FilterConfig.HTTP2: ("istio-h2", "istio", "h2"),
}
"""`istio` is for server proxies older than Istio 1.4, and the plain protocol is for servers outside the mesh."""
ALPN = hcm_pb2.HttpFilter(
    name="istio.alpn",
    typed_config=pack(
        alpn_pb2.FilterConfig(
            alpn_override=[
                alpn_pb2.FilterConfig.AlpnOverride(upstream_protocol=protocol, alpn_override=offer)
                for protocol, offer in _ALPN_OFFERS.items()
            ]
        )
    ),
)
"""Sets the ALPN that a client's proxy offers, so that the server's proxy learns the protocol that was detected."""


@lru_cache(maxsize=4)
def build_router(start_child_span: bool = False, suppress_envoy_headers: bool = False) -> hcm_pb2.HttpFilter:
    """Return the router, which ends every chain of HTTP filters.

    `start_child_span` creates a separate span for the proxy, which some tracers require. `suppress_envoy_headers`
    removes `x-envoy-*` headers.
    """
    return hcm_pb2.HttpFilter(
        name="envoy.filters.http.router",
        typed_config=pack(
            router_pb2.Router(start_child_span=start_child_span, suppress_envoy_headers=suppress_envoy_headers)
        ),
    )
