"""Builds the filter of cross-origin requests; the policy stands on the routes."""

from __future__ import annotations

from envoy.extensions.filters.http.cors.v3 import cors_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.http.cors"
CORS = hcm_pb2.HttpFilter(name=NAME, typed_config=pack(cors_pb2.Cors()))
