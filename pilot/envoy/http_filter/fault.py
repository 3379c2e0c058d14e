"""Builds the filter of injected delays and aborts; what is injected stands on the routes."""

from __future__ import annotations

from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.http.fault"
FAULT = hcm_pb2.HttpFilter(name=NAME, typed_config=pack(fault_pb2.HTTPFault()))
