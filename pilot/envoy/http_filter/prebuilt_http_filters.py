"""HTTP filters that are equal for all proxies, or only differ in a few flags."""

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
"""The filter that answers cross-origin preflight requests. Its policy is in the route configuration."""
FAULT = hcm_pb2.HttpFilter(name=FAULT_FILTER, typed_config=pack(fault_pb2.HTTPFault()))
"""The filter that injects delays and aborts. They are configured in the route configuration."""
STATEFUL_SESSION = hcm_pb2.HttpFilter(
    name=STATEFUL_SESSION_FILTER, typed_config=pack(stateful_session_pb2.StatefulSession())
)
"""The filter that keeps a session on one endpoint. Routes to services with sticky sessions configure it."""
GRPC_WEB = hcm_pb2.HttpFilter(name="envoy.filters.http.grpc_web", typed_config=pack(grpc_web_pb2.GrpcWeb()))
"""The filter that translates gRPC-Web requests from browsers into gRPC."""
GRPC_STATS = hcm_pb2.HttpFilter(
    name="envoy.filters.http.grpc_stats",
    typed_config=pack(
        grpc_stats_pb2.FilterConfig(emit_filter_state=True, stats_for_all_methods=wrappers_pb2.BoolValue(value=False))
    ),
)
"""The filter that counts gRPC messages.

It writes the counts to filter state for telemetry, and does not add Envoy statistics for each method.
"""

_ALPN_OFFERS = {
    alpn_pb2.FilterConfig.HTTP10: ("istio-http/1.0", "istio", "http/1.0"),
    alpn_pb2.FilterConfig.HTTP11: ("istio-http/1.1", "istio", "http/1.1"),
    alpn_pb2.FilterConfig.HTTP2: ("istio-h2", "istio", "h2"),
}
"""The ALPN values to offer for each protocol.

`istio` is for server proxies older than Istio 1.4. The plain protocol is for servers outside the mesh.
"""
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
"""The filter that sets the ALPN values that a client's proxy offers.

The ALPN tells the server's proxy which protocol the client's proxy detected.
"""


@lru_cache(maxsize=4)
def build_router(start_child_span: bool = False, suppress_envoy_headers: bool = False) -> hcm_pb2.HttpFilter:
    """Return the router filter, which is the last of the HTTP filters.

    `start_child_span` creates a separate span for the proxy, which some tracers require. `suppress_envoy_headers`
    removes `x-envoy-*` headers.
    """
    return hcm_pb2.HttpFilter(
        name="envoy.filters.http.router",
        typed_config=pack(
            router_pb2.Router(start_child_span=start_child_span, suppress_envoy_headers=suppress_envoy_headers)
        ),
    )
