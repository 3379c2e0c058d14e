"""Builds the filter that turns gRPC-Web from browsers into gRPC to the service."""

from __future__ import annotations

from envoy.extensions.filters.http.grpc_web.v3 import grpc_web_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.envoy.typed import pack

NAME = "envoy.filters.http.grpc_web"
GRPC_WEB = hcm_pb2.HttpFilter(name=NAME, typed_config=pack(grpc_web_pb2.GrpcWeb()))
