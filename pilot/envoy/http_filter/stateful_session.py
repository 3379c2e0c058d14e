"""Builds the filter of sticky sessions; it is empty, and the routes of services which ask for sessions fill it."""

from __future__ import annotations

from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.http.stateful_session"
STATEFUL_SESSION = hcm_pb2.HttpFilter(name=NAME, typed_config=pack(stateful_session_pb2.StatefulSession()))
