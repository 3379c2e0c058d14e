"""Builds the extension that gives requests an id."""

from __future__ import annotations

from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.request_id.uuid.v3 import uuid_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.well_known_types import pack


def build_request_id(sampling: bool) -> hcm_pb2.RequestIDExtension:
    """Returns the extension; with `sampling` the id remembers whether a request is traced."""
    config = uuid_pb2.UuidRequestIdConfig(use_request_id_for_trace_sampling=wrappers_pb2.BoolValue(value=sampling))
    return hcm_pb2.RequestIDExtension(typed_config=pack(config))
