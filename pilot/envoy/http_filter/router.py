"""Builds the filter that ends every chain of HTTP filters."""

from __future__ import annotations

from functools import lru_cache

from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.http.router"


@lru_cache(maxsize=4)
def build_router(start_child_span: bool = False, suppress_envoy_headers: bool = False) -> hcm_pb2.HttpFilter:
    """Returns the filter. `start_child_span`: for tracers that want a span of the proxy's own; `suppress_envoy_headers`: no x-envoy-* on
    the way."""
    return hcm_pb2.HttpFilter(
        name=NAME,
        typed_config=pack(
            router_pb2.Router(start_child_span=start_child_span, suppress_envoy_headers=suppress_envoy_headers)
        ),
    )
